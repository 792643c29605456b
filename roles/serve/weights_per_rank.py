"""Bytes of weights on each GPU. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from roles.serve.parallelism import Parallelism
from roles.serve.placement import Placement, Sharing
from roles.serve.profile import Profile
from roles.serve.tensors import Storage, Weight, draft_weights, mtp_weights, stage_weights
from roles.weights.model import Model, Part


@dataclass(frozen=True)
class StageWeights:
    """What each rank of one pipeline stage holds when the KV cache is sized, in bytes by part of the model."""

    parts: Mapping[Part, int]
    load_peak: int
    """Bytes held at once while the weights are brought into the form that kernels read."""

    @property
    def total(self) -> int:
        return sum(self.parts.values())


def weights_per_rank(
    model: Model, profile: Profile, parallelism: Parallelism, draft: Model | None = None
) -> tuple[StageWeights, ...]:
    """What each rank of each pipeline stage holds. Raises Refusal for sizes that do not nest."""
    placement = Placement.of(model, profile, parallelism)
    sharing = Sharing.of_parallelism(parallelism, model.architecture)
    algorithm = profile.server.get("speculative_algorithm")
    stages = []
    for stage in range(parallelism.pp):
        tensors = list(stage_weights(model, placement, stage))
        parts: Counter[Part] = Counter()
        for weight, copies in tensors:
            parts[weight.part] += copies * weight.bytes_on_rank(sharing)
        before_draft = sum(parts.values())
        if algorithm is not None and stage == parallelism.pp - 1:
            drafted = draft_weights(model, draft, str(algorithm), placement)
            draft_sharing = Sharing.of_parallelism(parallelism, (draft or model).architecture)
            parts["draft"] = sum(weight.bytes_on_rank(draft_sharing) for weight in drafted)
        peak = before_draft + _transient(model, placement, sharing, stage, tensors)
        stages.append(StageWeights(dict(parts), max(peak, sum(parts.values()))))
    return tuple(stages)


def _transient(
    model: Model, placement: Placement, sharing: Sharing, stage: int, tensors: Iterable[tuple[Weight, int]]
) -> int:
    """Bytes that loading needs beyond what stays: copies that are freed when a layer, or all, are done."""
    experts = [(weight, copies) for weight, copies in tensors if weight.storage is not Storage.BF16]
    experts = [(weight, copies) for weight, copies in experts if weight.part == "experts"]
    match model.quantization:
        case "int4-g32":
            # Marlin repacks one layer beside the original; the index of each input stays until all are done.
            indexed = stage_weights(model, replace(placement, keeps_group_index=True), stage)
            index = sum(copies * w.bytes_on_rank(sharing) for w, copies in indexed if w.name.startswith("g_idx"))
            return index + sum(weight.bytes_on_rank(sharing) for weight, _ in experts)
        case "nvfp4":
            # The scales exist twice until every layer has them in the order of the kernels.
            scales = (w.bytes_on_rank(sharing) // 9 * copies for w, copies in experts)
            return sum(scales)
    return 0


def checkpoint_bytes(model: Model, draft: Model | None = None, algorithm: str | None = None) -> int:
    """Bytes that a start reads from disk: the published checkpoint, MTP layer included, and that of a draft model."""
    placement = Placement(stages=(range(model.architecture.num_hidden_layers),))
    tensors = list(stage_weights(model, placement, 0))
    if draft is not None and algorithm is not None:
        tensors += [(weight, 1) for weight in draft_weights(model, draft, algorithm, placement)]
    elif model.architecture.num_nextn_predict_layers:
        tensors += [(weight, 1) for weight in mtp_weights(model, placement)]
    return sum(copies * weight.bytes for weight, copies in tensors if weight.in_checkpoint)
