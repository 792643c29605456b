"""Whether a profile fits into its GPUs, before ten minutes are spent on loading it. Pure, a few milliseconds.

SGLang measures the free memory B before it loads, and gives to the KV cache what the weights leave of
B x mem_fraction_static. What it allocates later has to fit into the rest, B x (1 - mem_fraction_static): nothing
checks that before the server runs out of memory. Too low a fraction leaves no KV cache, too high a one no room
for the rest.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from roles.preflight.hardware import Hardware
from roles.refusal import Refusal
from roles.serve.buffers import GIB, MIB, REQUEST_TABLE, Buffer, buffers
from roles.serve.kv_cache import bytes_per_token
from roles.serve.parallelism import Parallelism
from roles.serve.placement import Placement
from roles.serve.profile import Profile
from roles.serve.sizing import Sizing
from roles.serve.weights_per_rank import StageWeights, checkpoint_bytes, weights_per_rank
from roles.weights.model import Model

CONTEXT: Final = 1230 * MIB
"""Gone before weights load: driver and CUDA context (H200: 143771 MiB in all, 139.20 GiB free)."""
COMMUNICATORS: Final = 1118 * MIB
"""And what NCCL takes with several GPUs (eight RTX PRO 6000: 97887 MiB in all, 93.30 GiB free)."""
BEFORE_WEIGHTS: Final = 123 * MIB
"""Gone after B was measured and before weights load (one H200, SGLang 0.5.17: 139.08 of 139.20 GiB are left)."""
MULTIMODAL: Final = 100 * MIB
"""Kept out of the KV cache for the vision tower's embeddings (`SGLANG_VLM_CACHE_SIZE_MB`)."""

BAND_START: Final = 0.1 * GIB
BAND_START_SEVERAL: Final = 2.0 * GIB
"""How far B may be off when it is derived from the GPU's size: NCCL's share depends on its settings."""
BAND_WEIGHTS: Final = 0.005
BAND_BUFFERS: Final = 0.25
BAND_FRAGMENTS: Final = 0.3 * GIB
"""Memory that the allocator holds and nobody can use."""

BISECTIONS: Final = 14
"""Enough for a fraction in four digits."""


class Verdict(StrEnum):
    """What a plan says about a profile."""

    OK = "OK"
    TIGHT = "TIGHT"
    """It may work: within the error band, or with less KV cache than one request of full length."""
    NO = "NO"


@dataclass(frozen=True)
class Interval:
    """Values of mem_fraction_static from `low` to `high`; empty where low exceeds high."""

    low: float
    high: float

    @property
    def is_empty(self) -> bool:
        return self.low > self.high

    def __contains__(self, fraction: float) -> bool:
        return self.low <= fraction <= self.high


NOWHERE: Final = Interval(1.0, 0.0)


class Change(NamedTuple):
    """What would help: a flag, and the direction in which to move it."""

    flag: str
    direction: str
    """`lower`, `raise`, or what to do instead."""


class Estimate(NamedTuple):
    """What one profile needs on each of its GPUs. Bytes, for the rank that has most, unless a name says otherwise."""

    gpus: int
    free_at_start: int
    """B: free memory of one GPU before weights load, declared or derived from the GPU's size."""
    mem_fraction_static: float
    stages: tuple[StageWeights, ...]
    """Weights of a rank of each pipeline stage, by part of the model."""
    kv_bytes_per_stage: tuple[int, ...]
    """Bytes of one token on a rank of each pipeline stage, those of a draft among them."""
    draft_kv_bytes: int
    """Bytes of one token in the draft's own pool, which SGLang reports elsewhere."""
    tokens: int
    """Tokens in the KV cache of one attention group; 0 where no room is left for it."""
    context_length: int
    max_running_requests: int
    buffers: tuple[Buffer, ...]
    """Allocated after the KV cache is sized."""
    load_bytes: int
    """Bytes of the checkpoints that a start reads from disk."""
    verdict: Verdict
    feasible: Interval
    """Fractions at which the verdict is not NO: the profile may start and serve. Empty: none does."""
    safe: Interval
    """Fractions at which both sides hold even at the bad end of the error band."""
    breaks: str
    """The first thing that does not fit, in words; empty for OK."""
    change: Change | None
    """What to change, and in which direction; None for OK."""
    band_kv: int
    """Error band of what is left for the KV cache."""
    band_buffers: int
    """Error band of what must fit beside it."""

    @property
    def weights(self) -> int:
        return max(stage.total for stage in self.stages)

    @property
    def kv_bytes_per_token(self) -> int:
        """The largest stage decides: all stages agree on the fewest tokens."""
        return max(self.kv_bytes_per_stage)

    @property
    def kv_cache(self) -> int:
        return self.tokens * self.kv_bytes_per_token

    @property
    def reported_weights(self) -> int:
        """What a server reports as its weights: those of its first stage, without a draft."""
        return self.stages[0].of_target

    @property
    def reported_kv_cache(self) -> int:
        """What a server reports as its KV cache: that of its first stage, without a draft's."""
        return self.tokens * (self.kv_bytes_per_stage[0] - self.draft_kv_bytes)

    @property
    def outside(self) -> int:
        """B x (1 - fraction), and what a draft gives up: the room for the buffers."""
        return int(self.free_at_start * (1 - self.mem_fraction_static)) + min(s.released for s in self.stages)

    @property
    def buffers_total(self) -> int:
        return sum(buffer.bytes for buffer in self.buffers)

    @property
    def requests_at_context(self) -> float:
        """How many requests of full context length the KV cache holds, over all attention groups' ranks of one."""
        return self.tokens / self.context_length


def estimate(
    model: Model,
    profile: Profile,
    hardware: Hardware,
    draft: Model | None = None,
    free_at_start: int | None = None,
) -> Estimate:
    """What `profile` needs on each GPU of `hardware`.

    `free_at_start` is B in bytes where it was measured. Raises Refusal for hardware without GPUs or without a memory
    size, for sizes that do not nest, and for values that cannot be estimated.
    """
    if hardware.gpus < 1:
        raise Refusal("hardware.gpus: must be at least 1 to estimate GPU memory, not 0")
    if hardware.memory_mib < 1 and free_at_start is None:
        raise Refusal("hardware.memory_mib: required to estimate GPU memory, but not given")
    parallelism = Parallelism.of(profile.server)
    sizing = Sizing.of(model, profile, parallelism, hardware)
    stages = weights_per_rank(model, profile, parallelism, draft)
    several = parallelism.tp * parallelism.pp > 1
    start = free_at_start or hardware.memory_mib * MIB - CONTEXT - (COMMUNICATORS if several else 0)
    cells = _cells(model, profile, parallelism, sizing, draft, _algorithm(profile))
    cell = max(cells)

    held = max(stage.total + stage.fragments for stage in stages) + BEFORE_WEIGHTS
    held += MULTIMODAL if _is_multimodal(model, profile) else 0
    band_start = BAND_START_SEVERAL if several and free_at_start is None else BAND_START
    band_kv = int(band_start + BAND_WEIGHTS * held)

    released = min(stage.released for stage in stages)

    def room(fraction: float, side: int) -> float:
        left, allocated = start * (1 - fraction), allocated_at(fraction)
        if not released:
            return left - _need(allocated, side)
        with_pools = [buffer for buffer in allocated if buffer.name == REQUEST_TABLE]
        return min(left - _need(tuple(with_pools), side), left + released - _need(allocated, side))

    def allocated_at(fraction: float) -> tuple[Buffer, ...]:
        return buffers(model, sizing, parallelism, hardware, _tokens(start * fraction - held, cell, sizing))

    fraction = sizing.mem_fraction_static
    tokens = _tokens(start * fraction - held, cell, sizing)
    allocated = allocated_at(fraction)
    one_request = min(sizing.context_length, sizing.max_total_tokens or sizing.context_length) * cell
    feasible = Interval(
        low=(held + max(2, sizing.page_size) * cell - band_kv) / start,
        high=_highest(lambda fraction: room(fraction, -1)),
    )
    safe = Interval(
        low=(held + one_request + band_kv) / start,
        high=_highest(lambda fraction: room(fraction, +1)),
    )
    if max(stage.load_peak for stage in stages) > start + band_kv:
        feasible = safe = NOWHERE
    verdict = Verdict.NO if fraction not in feasible else Verdict.OK if fraction in safe else Verdict.TIGHT
    breaks, change = _why(verdict, fraction, feasible if verdict is Verdict.NO else safe, allocated, tokens, sizing)
    return Estimate(
        gpus=parallelism.gpus,
        free_at_start=start,
        mem_fraction_static=fraction,
        stages=stages,
        kv_bytes_per_stage=cells,
        draft_kv_bytes=cells[0] - _cells(model, profile, parallelism, sizing, None, None)[0],
        tokens=tokens,
        context_length=sizing.context_length,
        max_running_requests=sizing.requests(tokens),
        buffers=allocated,
        load_bytes=checkpoint_bytes(model, draft, _algorithm(profile)),
        verdict=verdict,
        feasible=feasible,
        safe=safe,
        breaks=breaks,
        change=change,
        band_kv=band_kv,
        band_buffers=_band(allocated, +1),
    )


def _band(allocated: tuple[Buffer, ...], side: int) -> int:
    spread = sum(buffer.spread for buffer in allocated) if side > 0 else 0
    return int(BAND_FRAGMENTS + BAND_BUFFERS * sum(buffer.bytes for buffer in allocated)) + spread


def _need(allocated: tuple[Buffer, ...], side: int) -> int:
    """Bytes of the buffers at the good (-1) or the bad (+1) end of their band."""
    return sum(buffer.bytes for buffer in allocated) + side * _band(allocated, side)


def _highest(room: Callable[[float], float]) -> float:
    """The highest fraction that leaves room, which shrinks as the fraction grows; 0 where none does."""
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if room(middle) >= 0 else (low, middle)
    return low


def _cells(
    model: Model,
    profile: Profile,
    parallelism: Parallelism,
    sizing: Sizing,
    draft: Model | None,
    algorithm: str | None,
) -> tuple[int, ...]:
    """Bytes per token on a rank of each pipeline stage, with the draft of `algorithm`."""
    return tuple(
        bytes_per_token(model, layers, parallelism, sizing.kv_cache_dtype, sizing.plain_sparse_rows, algorithm, draft)
        for layers in Placement.of(model, profile, parallelism).stages
    )


def _algorithm(profile: Profile) -> str | None:
    said = profile.server.get("speculative_algorithm")
    return None if said is None else str(said)


def _is_multimodal(model: Model, profile: Profile) -> bool:
    return model.architecture.vision_config is not None and not profile.server.get("language_only")


def _tokens(room: float, cell: int, sizing: Sizing) -> int:
    tokens = max(0, int(room)) // cell
    if sizing.max_total_tokens is not None:
        tokens = min(tokens, sizing.max_total_tokens)
    return tokens // sizing.page_size * sizing.page_size


def _why(
    verdict: Verdict, fraction: float, interval: Interval, allocated: tuple[Buffer, ...], tokens: int, sizing: Sizing
) -> tuple[str, Change | None]:
    """What breaks first, and what to change; `interval` is where the next better verdict is."""
    if verdict is Verdict.OK:
        return "", None
    largest = max((buffer for buffer in allocated if buffer.grows_with), key=lambda buffer: buffer.bytes)
    if interval.low >= 1:
        reason = "the weights do not fit into the GPU, or not while they are loaded"
        return reason, Change("tp_size or pp_size", "raise")
    if interval.is_empty and verdict is Verdict.TIGHT:
        reason = (
            f"no fraction surely leaves room for both a request of {sizing.context_length} tokens and the buffers"
        )
        return reason, Change("context_length", "lower")
    if interval.is_empty:
        reason = f"no fraction leaves room for both the KV cache and {largest.name}"
        return reason, Change(largest.grows_with, "lower")
    if fraction < interval.low:
        reason = "the weights leave no room for the KV cache"
        if verdict is Verdict.TIGHT:
            reason = (
                f"the KV cache may hold less than one request of {sizing.context_length} tokens ({tokens} expected)"
            )
        return reason, Change("mem_fraction_static", "raise")
    do = "do not" if verdict is Verdict.NO else "may not"
    return f"{largest.name} and other buffers {do} fit beside the KV cache", Change("mem_fraction_static", "lower")
