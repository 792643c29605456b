"""Bytes of weights on each GPU. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from roles.serve.parallelism import Parallelism
from roles.serve.placement import Placement, Sharing
from roles.serve.profile import Profile
from roles.serve.tensors import MTP_ALGORITHMS, Storage, Weight, draft_weights, mtp_weights, stage_weights
from roles.weights.model import Model, Part

SMALL: Final = 2**20
LARGE: Final = 10 * 2**20
SEGMENT: Final = 20 * 2**20
"""torch's allocator takes tensors above SMALL and up to LARGE from segments of this size, and gives a segment back
only when no tensor is left in it (c10/cuda/CUDACachingAllocator: kSmallSize, kMinLargeAlloc, kLargeBuffer)."""

SHARED_WITH_TARGET: Final = frozenset({"embed_tokens", "lm_head"})
"""Tensors of an MTP draft that are freed for the target's once the KV cache is sized (`set_embed_and_head`)."""


class StageWeights(NamedTuple):
    """What each rank of one pipeline stage holds when the KV cache is sized, in bytes by part of the model."""

    parts: Mapping[Part, int]
    load_peak: int
    """Bytes held at once while the weights are brought into the form that kernels read."""
    fragments: int = 0
    """Bytes in the allocator's segments of the model that no tensor uses, and nothing else gets."""
    released: int = 0
    """Bytes of the draft that are freed once the KV cache is sized."""

    @property
    def total(self) -> int:
        return sum(self.parts.values())

    @property
    def of_target(self) -> int:
        """What SGLang reports as the weights of the model itself."""
        return self.total - self.parts.get("draft", 0) + self.fragments


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
        released = 0
        if algorithm is not None and stage == parallelism.pp - 1:
            drafted = draft_weights(model, draft, str(algorithm), placement)
            draft_sharing = Sharing.of_parallelism(parallelism, (draft or model).architecture)
            parts["draft"] = sum(weight.bytes_on_rank(draft_sharing) for weight in drafted)
            if draft is None and algorithm in MTP_ALGORITHMS:
                given_up = (weight for weight in drafted if weight.name in SHARED_WITH_TARGET)
                released = sum(weight.bytes_on_rank(draft_sharing) for weight in given_up)
        peak = before_draft + _transient(model, placement, sharing, stage, tensors)
        fragments = sum(copies * _fragment(weight, model, placement, sharing) for weight, copies in tensors)
        stages.append(StageWeights(dict(parts), max(peak, sum(parts.values())), fragments, released))
    return tuple(stages)


def _fragment(weight: Weight, model: Model, placement: Placement, sharing: Sharing) -> int:
    """Bytes that a tensor keeps from others, where an allocator's snapshot showed why (one H200, SGLang 0.5.17).

    These are 154 of the 200 MiB of Kimi K2.6 in INT4 with 9 layers; smaller remainders are left out. Where ranks
    share a layer, pieces are smaller and lie differently: nobody has seen how, and nothing is claimed.
    """
    size = weight.bytes_on_rank(sharing)
    if sharing.tp > 1:
        return 0
    if weight.name == "w_kc, w_vc":  # made layer by layer after loading, when nothing else fits beside them
        half = size // 2
        return 2 * (SEGMENT // (SEGMENT // half) - half) if SMALL < half <= LARGE else 0
    if weight.name == "gate" and model.quantization == "int4-g32" and not placement.keeps_group_index:
        return SEGMENT - size  # its neighbours were the index and the sort order of the experts, which are freed
    return 0


def _transient(
    model: Model, placement: Placement, sharing: Sharing, stage: int, tensors: Iterable[tuple[Weight, int]]
) -> int:
    """Bytes that loading needs beyond what stays: copies that are freed when a layer, or all, are done."""
    experts = [(weight, copies) for weight, copies in tensors if weight.storage is not Storage.BF16]
    experts = [(weight, copies) for weight, copies in experts if weight.part == "experts"]
    match model.quantization:
        case "int4-g32":
            # Marlin repacks one layer beside the original; the index of each input stays until all are done.
            indexed = stage_weights(model, placement._replace(keeps_group_index=True), stage)
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
