"""What a server reports of its memory, beside what was computed for it. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from roles.serve.buffers import GIB
from roles.serve.memory import Estimate

PREFILL_ONLY: Final = "prefill activations"
"""The one buffer that is not there yet when a server gets ready."""

_AVAILABLE: Final = {
    "free before weights": re.compile(r"Load weight begin\. avail mem=([\d.]+) GB"),
    "free after weights": re.compile(r"Load weight end\..*avail mem=([\d.]+) GB"),
    "free after pool": re.compile(r"Memory pool end\. avail mem=([\d.]+) GB"),
    "free when ready": re.compile(r"available_gpu_mem=([\d.]+) GB"),
}
"""GiB, though SGLang prints GB."""


@dataclass(frozen=True)
class Figure:
    """One predicted figure and what was reported; GiB, tokens or bytes."""

    name: str
    predicted: float
    reported: float

    @property
    def off(self) -> float:
        """By which share of what was reported the prediction is too high."""
        return self.predicted / self.reported - 1 if self.reported else 0.0


def available(log: str) -> dict[str, float]:
    """Free memory by moment, in GiB, as far as the log got; with a draft, after its share."""
    found = {moment: pattern.findall(log) for moment, pattern in _AVAILABLE.items()}
    return {moment: float(sizes[0 if "before" in moment else -1]) for moment, sizes in found.items() if sizes}


def figures(expected: Estimate, usage: Mapping[str, object], log: str) -> tuple[Figure, ...]:
    """Predictions against `memory_usage` of the server's first rank and its log."""
    free = available(log)
    tokens, cache = _number(usage.get("token_capacity")), _number(usage.get("kvcache"))
    cell = expected.kv_bytes_per_stage[0] - expected.draft_kv_bytes
    when_ready = expected.outside - sum(b.bytes for b in expected.buffers if b.name != PREFILL_ONLY)
    graphs = usage.get("graph")
    captured = sum(map(_number, graphs.values())) if isinstance(graphs, Mapping) else 0.0
    rows = [
        Figure("weights", expected.reported_weights / GIB, _number(usage.get("weight"))),
        Figure("KV bytes per token", cell, round(cache * GIB / tokens) if tokens else 0),
        Figure("KV tokens", expected.tokens, tokens),
        Figure("KV cache", expected.reported_kv_cache / GIB, cache),
        Figure("graphs", sum(b.bytes for b in expected.buffers if b.captured) / GIB, captured),
        Figure("free when ready", when_ready / GIB, free.get("free when ready", 0.0)),
    ]
    if "free after weights" in free and tokens and expected.mem_fraction_static < 1:
        pools = cache + tokens * expected.draft_kv_bytes / GIB
        rows.append(Figure("free at start", expected.free_at_start / GIB, _start(expected, free, pools)))
    return tuple(rows)


def _start(expected: Estimate, free: Mapping[str, float], cache: float) -> float:
    """B, which SGLang does not print, from cache = free after weights - B x (1 - fraction)."""
    return (free["free after weights"] - cache) / (1 - expected.mem_fraction_static)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
