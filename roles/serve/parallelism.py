"""How a server is spread over GPUs: SGLang's parallel sizes. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from roles.refusal import Refusal
from roles.serve.profile import Flag


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
        """The sizes in a profile's `server:` block. Raises Refusal for a size that is not a positive integer."""
        sizes = {
            "dp": "dp_size",
            "tp": "tp_size",
            "pp": "pp_size",
            "ep": "ep_size",
            "attn_dp": "attn_dp_size",
            "moe_dp": "moe_dp_size",
            "nnodes": "nnodes",
        }
        return cls(**{size: _positive(flag, server.get(flag, 1)) for size, flag in sizes.items()})

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
