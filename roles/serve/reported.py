"""The estimate against what a started server reports of its memory. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from roles.serve.buffers import GIB
from roles.serve.memory import Estimate

TOKENS_BAND: Final = 0.02


class Difference(NamedTuple):
    """One predicted figure against what a server reported."""

    name: str
    predicted: float
    reported: float
    band: float
    """Largest difference that the estimate claims for itself, in the unit of the figures."""

    @property
    def exceeds_band(self) -> bool:
        return abs(self.reported - self.predicted) > self.band

    @property
    def sentence(self) -> str:
        band = f"error band {self.band:,.3g}"
        return f"{self.name}: {self.reported:,.6g} reported, {self.predicted:,.6g} estimated, {band}"


def compare(predicted: Estimate, reported: Mapping[str, object]) -> tuple[Difference, ...]:
    """The estimate against `memory_usage` of a started server's /server_info; sizes in GiB.

    A figure that the server does not report is left out.
    """
    weights, kv_cache = predicted.reported_weights, predicted.reported_kv_cache
    tokens_band = TOKENS_BAND * predicted.tokens + predicted.band_kv / predicted.kv_bytes_per_token
    kv_band = (TOKENS_BAND * kv_cache + predicted.band_kv) / GIB
    graphs = sum(buffer.bytes for buffer in predicted.buffers if buffer.captured)
    lines = [
        ("weight", weights / GIB, _number(reported.get("weight")), 0.01 * weights / GIB),
        ("kvcache", kv_cache / GIB, _number(reported.get("kvcache")), kv_band),
        ("token_capacity", predicted.tokens, _number(reported.get("token_capacity")), tokens_band),
        ("graph", graphs / GIB, _graphs(reported.get("graph")), predicted.band_buffers / GIB),
    ]
    return tuple(Difference(name, ours, theirs, band) for name, ours, theirs, band in lines if theirs is not None)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _graphs(value: object) -> float | None:
    if not isinstance(value, Mapping):
        return None
    return sum(number for part in value.values() if (number := _number(part)) is not None)
