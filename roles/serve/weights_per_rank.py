"""Bytes of weights on each GPU. Pure."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from roles.serve.parallelism import Parallelism
from roles.serve.placement import Placement, Sharing
from roles.serve.profile import Profile
from roles.serve.tensors import draft_weights, mtp_weights, stage_weights
from roles.weights.model import Model, Part


@dataclass(frozen=True)
class StageWeights:
    """What each rank of one pipeline stage holds, in bytes by part of the model."""

    parts: Mapping[Part, int]
    shared_by_draft: int = 0
    """Bytes under `draft` that are given up after the KV pool is sized: the draft's own embedding and head."""

    @property
    def total(self) -> int:
        """Bytes held when the KV pool is sized."""
        return sum(self.parts.values())


def weights_per_rank(
    model: Model, profile: Profile, parallelism: Parallelism, draft: Model | None = None
) -> tuple[StageWeights, ...]:
    """Bytes on each rank of each pipeline stage. Raises Refusal for sizes that do not nest."""
    placement = Placement.of(model, profile, parallelism)
    sharing = Sharing.of_parallelism(parallelism, model.architecture)
    algorithm = profile.server.get("speculative_algorithm")
    stages = []
    for stage in range(len(placement.stages)):
        parts: Counter[Part] = Counter()
        for weight, copies in stage_weights(model, placement, stage):
            parts[weight.part] += copies * weight.bytes_on_rank(sharing)
        given_up = 0
        if algorithm is not None and stage == len(placement.stages) - 1:
            drafted, shared = draft_weights(model, draft, str(algorithm), placement)
            draft_sharing = Sharing.of_parallelism(parallelism, (draft or model).architecture)
            parts["draft"] = sum(weight.bytes_on_rank(draft_sharing) for weight in (*drafted, *shared))
            given_up = sum(weight.bytes_on_rank(draft_sharing) for weight in shared)
        stages.append(StageWeights(dict(parts), given_up))
    return tuple(stages)


def checkpoint_bytes(model: Model) -> int:
    """Bytes of the checkpoint as published, its MTP layers included: what is read from disk at a load."""
    placement = Placement(stages=(range(model.architecture.num_hidden_layers),))
    total = sum(copies * w.bytes for w, copies in stage_weights(model, placement, 0) if w.in_checkpoint)
    drafted, _ = mtp_weights(model, placement) if model.architecture.num_nextn_predict_layers else ([], [])
    return total + sum(weight.bytes for weight in drafted if weight.in_checkpoint)
