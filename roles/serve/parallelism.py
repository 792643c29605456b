"""How a server is spread over GPUs: SGLang's parallel sizes. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from roles.refusal import Refusal
from roles.serve.profile import Flag

FLAGS: Final = {
    "dp": "dp_size",
    "tp": "tp_size",
    "pp": "pp_size",
    "ep": "ep_size",
    "attn_dp": "attn_dp_size",
    "moe_dp": "moe_dp_size",
    "nnodes": "nnodes",
}

ALL_TO_ALL: Final = frozenset(
    [
        "ascend_fuseep",
        "deepep",
        "deepep_v2",
        "flashinfer",
        "flashinfer_megamoe",
        "megamoe",
        "mooncake",
        "mori",
        "nixl",
        "pplx",
    ]
)
"""All-to-all backends under which SGLang 0.5.23 sets ep_size to tp_size, whatever was asked
(`_A2A_EP_SPANNING_BACKENDS` in arg_groups/overrides.py)."""


@dataclass(frozen=True)
class Parallelism:
    """The parallel sizes of one server; each is 1 when its flag is absent."""

    dp: int = 1
    """Full replicas of the model (`dp_size`)."""
    tp: int = 1
    """Ranks that share every layer (`tp_size`)."""
    pp: int = 1
    """Stages that share out the layers (`pp_size`)."""
    ep: int = 1
    """Groups that share out the routed experts, inside tp (`ep_size`)."""
    attn_dp: int = 1
    """Groups with an attention and a KV cache of their own, inside tp (`attn_dp_size`)."""
    moe_dp: int = 1
    """Replicas of the routed experts, inside tp (`moe_dp_size`)."""
    nnodes: int = 1
    """Hosts (`nnodes`)."""

    @classmethod
    def of(cls, server: Mapping[str, Flag]) -> Self:
        """The sizes that SGLang makes of a profile's `server:` block.

        Raises Refusal for a size that is not a positive integer.
        """
        sizes = {size: _positive(flag, server.get(flag, 1)) for size, flag in FLAGS.items()}
        if server.get("enable_dp_attention") and sizes["attn_dp"] == 1:
            # The deprecated spelling: SGLang's handle_deprecated_dp_attention moves dp_size to attn_dp_size.
            sizes |= {"attn_dp": sizes["dp"], "dp": 1}
        if server.get("moe_a2a_backend") in ALL_TO_ALL:
            sizes["ep"] = sizes["tp"]
        return cls(**sizes)

    @property
    def gpus(self) -> int:
        """GPUs that the server uses: dp x tp x pp (SGLang's `launch_world_size_of`)."""
        return self.dp * self.tp * self.pp

    @property
    def attn_tp(self) -> int:
        """Ranks that share the attention heads of one layer; 0 where attn_dp exceeds tp."""
        return self.tp // self.attn_dp

    @property
    def moe_tp(self) -> int:
        """Ranks that share each expert (SGLang: tp // ep // moe_dp); 0 where the sizes do not nest."""
        return self.tp // self.ep // self.moe_dp


def _positive(flag: str, value: Flag) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Refusal(f"server.{flag}: must be an integer of at least 1, not {value!r}")
    return value
