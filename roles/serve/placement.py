"""Where the flags of a profile put the weights: over which ranks each kind of tensor is shared out. Pure.

Source: SGLang 0.5.23, models/deepseek_v2.py, distributed/utils.py, layers/dp_attention.py.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from roles.refusal import Refusal
from roles.serve.parallelism import Parallelism
from roles.serve.profile import Flag, Profile
from roles.weights.model import Architecture, Model

PARTITION: Final = "SGLANG_PP_LAYER_PARTITION"

SHARED_EXPERT_REPLICATED: Final = frozenset(
    {"deepep", "deepep_v2", "pplx", "mooncake", "nixl", "mori", "flashinfer", "megamoe", "flashinfer_megamoe"}
)
"""All-to-all backends under which every rank holds the whole shared expert."""


class Split(Enum):
    """Which ranks of a pipeline stage share a tensor."""

    NOT = "every rank holds all of it"
    TENSOR = "over all ranks of the stage"
    ATTENTION = "over the ranks of one attention group"
    KV_HEADS = "over the ranks of one attention group, but a KV head is never divided"
    EXPERTS = "experts over ep, each expert over the rest"
    WHOLE_EXPERTS = "experts over ep, each whole"


class Sharing(NamedTuple):
    """Over how many ranks each kind of tensor is divided."""

    tp: int
    attn_tp: int
    kv_heads: int
    ep: int
    moe_tp: int

    @classmethod
    def of_parallelism(cls, parallelism: Parallelism, architecture: Architecture) -> "Sharing":
        """Raises Refusal where the sizes do not nest."""
        if not parallelism.attn_tp or not parallelism.moe_tp:
            raise Refusal(f"{parallelism}: attn_dp, ep and moe_dp must divide tp")
        heads = architecture.num_key_value_heads or architecture.num_attention_heads
        return cls(
            parallelism.tp, parallelism.attn_tp, min(parallelism.attn_tp, heads), parallelism.ep, parallelism.moe_tp
        )

    def of(self, split: Split) -> int:
        """Ranks that share one matrix under `split`."""
        return {
            Split.NOT: 1,
            Split.WHOLE_EXPERTS: 1,
            Split.TENSOR: self.tp,
            Split.ATTENTION: self.attn_tp,
            Split.KV_HEADS: self.kv_heads,
            Split.EXPERTS: self.moe_tp,
        }[split]


class Placement(NamedTuple):
    """The flags of a profile that decide where weights are, beside the parallel sizes."""

    stages: tuple[range, ...]
    """Layers of each pipeline stage."""
    redundant_experts: int = 0
    dense_mlp_split: Split = Split.TENSOR
    shared_experts_split: Split = Split.TENSOR
    draft_shared_experts_split: Split = Split.TENSOR
    lm_head_split: Split = Split.TENSOR
    language_only: bool = False
    vision_split: Split = Split.ATTENTION
    keeps_group_index: bool = False
    """INT4 experts on the Triton runner keep an index per input element that Marlin frees."""

    @classmethod
    def of(cls, model: Model, profile: Profile, parallelism: Parallelism) -> "Placement":
        """What `profile` says. Raises Refusal for a layer partition that does not fit the model."""
        server = profile.server
        replicated = server.get("moe_a2a_backend") in SHARED_EXPERT_REPLICATED or profile.environment.get(
            "SGLANG_SHARED_EXPERT_TP1"
        ) in ("1", "true", "True")
        return cls(
            stages=pipeline_stages(
                model.architecture.num_hidden_layers, parallelism.pp, profile.environment.get(PARTITION)
            ),
            redundant_experts=_integer(server, "ep_num_redundant_experts", 0),
            dense_mlp_split=Split.NOT if server.get("moe_dense_tp_size") == 1 else Split.TENSOR,
            shared_experts_split=Split.NOT if replicated or _gathers_fp4(model, parallelism) else Split.TENSOR,
            draft_shared_experts_split=Split.NOT if replicated else Split.TENSOR,
            lm_head_split=Split.ATTENTION if server.get("enable_dp_lm_head") else Split.TENSOR,
            language_only=bool(server.get("language_only") or server.get("language_model_only")),
            vision_split=Split.NOT if server.get("mm_enable_dp_encoder") else Split.ATTENTION,
            keeps_group_index=server.get("moe_runner_backend") == "triton",
        )


def _gathers_fp4(model: Model, parallelism: Parallelism) -> bool:
    """NVFP4 experts fed by an all-gather of fp4 (`should_use_flashinfer_cutlass_moe_fp4_allgather`)."""
    return model.quantization == "nvfp4" and parallelism.attn_dp > 1 and parallelism.ep == parallelism.attn_dp


def _integer(server: Mapping[str, Flag], flag: str, default: int) -> int:
    value = server.get(flag, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refusal(f"server.{flag}: must be an integer, not {value!r}")
    return value


def pipeline_stages(layers: int, stages: int, partition: str | None = None) -> tuple[range, ...]:
    """Layers of each pipeline stage: the last `layers % stages` stages get one more (`get_pp_indices`).

    `partition` is SGLANG_PP_LAYER_PARTITION, which SGLang ignores for a single stage. Raises Refusal.
    """
    if partition is None or stages == 1:
        base, more = divmod(layers, stages)
        sizes = [base + (stage >= stages - more) for stage in range(stages)]
    else:
        try:
            sizes = [int(size) for size in partition.split(",")]
        except ValueError:
            raise Refusal(
                f"environment.{PARTITION}: must be numbers separated by commas, not {partition!r}"
            ) from None
        if len(sizes) != stages or sum(sizes) != layers or min(sizes) < 0:
            raise Refusal(
                f"environment.{PARTITION}: must be {stages} numbers, one for each pipeline stage, "
                f"with the sum {layers}, not {partition!r}"
            )
    starts = [sum(sizes[:stage]) for stage in range(stages)]
    return tuple(range(start, start + size) for start, size in zip(starts, sizes, strict=True))
