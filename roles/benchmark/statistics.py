"""How far figures can be trusted: intervals, the noise between restarts, and what is equal within it. Pure.

A figure is the median of a measurement's repeats. Between two measurements the server has usually been
restarted, which moves figures by more than repeats within one server differ.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist, geometric_mean, median, stdev
from typing import Final, NamedTuple, TypeVar

Place = TypeVar("Place")

RESTART_NOISE: Final[Mapping[str, float]] = {
    "output_throughput": 0.03,
    "request_goodput": 0.05,
    "median_ttft_ms": 0.10,
    "p95_ttft_ms": 0.12,
    "p99_ttft_ms": 0.15,
    "median_tpot_ms": 0.04,
    "p95_tpot_ms": 0.06,
    "p99_tpot_ms": 0.06,
    "median_e2e_latency_ms": 0.04,
    "p95_e2e_latency_ms": 0.06,
    "p99_e2e_latency_ms": 0.06,
}
"""Relative standard deviation of a figure from one start of a server to the next, before a host knows its own.

Measured with SGLang 0.5.17 on an H200, three seeds, dense and MoE models: a restart with the same seeds moved
throughput by 3-4 % and p99 TTFT by up to 27 %; within one server the coefficient of variation was 0-3.7 % for
throughput, up to 4.8 % for the median TPOT and up to 17 % for the median TTFT.
"""

PRIOR_WEIGHT: Final = 4
"""RESTART_NOISE counts as much as this many degrees of freedom against what the host itself has shown."""

FALSE_ALARMS: Final = 0.03
"""At most this share of comparisons between two equal servers may call one of them worse."""

# Two-sided 95 % quantiles of Student's t distribution for 1, 2, ... degrees of freedom.
_T95: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093),
)

# Standard error of the median over that of one normal value, for 1, 2, ... values; sqrt(pi / 2n) beyond.
_MEDIAN_ERROR: Final = (1.0, 0.7071, 0.6698, 0.5461, 0.5357, 0.4647, 0.4587, 0.4113, 0.4075)


class Interval(NamedTuple):
    """From `low` to `high`, in the unit of the figure."""

    low: float
    high: float


class Figure(NamedTuple):
    """The repeats of one measurement of one quantity."""

    values: tuple[float, ...]
    """One per repeat, at least one."""

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def interval(self) -> Interval:
        """Student's 95 % interval of the repeats' mean, laid around the median; one value has no width."""
        n = len(self.values)
        half = _t95(n - 1) * stdev(self.values) / math.sqrt(n) if n > 1 else 0.0
        return Interval(self.median - half, self.median + half)

    @property
    def relative_error(self) -> float:
        """Standard error of the median as a share of it, from the spread of the repeats."""
        n = len(self.values)
        if n < 2 or not self.median:
            return 0.0
        factor = _MEDIAN_ERROR[n - 1] if n <= len(_MEDIAN_ERROR) else math.sqrt(math.pi / (2 * n))
        return factor * stdev(self.values) / abs(self.median)


def _t95(freedom: int) -> float:
    return _T95[min(freedom, len(_T95)) - 1]


def restart_noise(metric: str, history: Sequence[Sequence[float]]) -> float:
    """Relative standard deviation of `metric` between restarts on this host.

    Each inner sequence holds the medians of measurements of one and the same server (one fingerprint), each
    after a start of its own. Their spread is pooled with RESTART_NOISE, which a long history outweighs.
    """
    freedom: float = PRIOR_WEIGHT
    squares = PRIOR_WEIGHT * RESTART_NOISE[metric] ** 2
    for medians in history:
        if len(medians) > 1 and min(medians) > 0:
            centre = geometric_mean(medians)
            squares += sum(math.log(value / centre) ** 2 for value in medians)
            freedom += len(medians) - 1
    return math.sqrt(squares / freedom)


def noise_band(before: Figure, after: Figure, noise: float, comparisons: int = 1) -> float:
    """The relative difference that two measurements of equal servers stay under, but for FALSE_ALARMS.

    `noise` is that between restarts; a measurement whose own repeats spread further counts with that spread.
    With several comparisons each must be stricter for all together to keep the rate (Šidák). Noise multiplies a
    figure: a restless host, too, can tell a tenth from the whole.
    """
    spread = math.hypot(max(noise, before.relative_error), max(noise, after.relative_error))
    confidence = (1 - FALSE_ALARMS) ** (1 / comparisons)
    return 1 - math.exp(-NormalDist().inv_cdf(confidence) * spread)


def drop(before: Figure, after: Figure) -> float:
    """By which share `after` lies under `before`; negative for a gain."""
    return 1 - after.median / before.median if before.median else 0.0


def equal(one: Figure, other: Figure, noise: float) -> bool:
    """Whether the difference of two figures is no more than noise, whichever is larger."""
    larger, smaller = sorted((one, other), key=lambda figure: -figure.median)
    return drop(larger, smaller) <= noise_band(larger, smaller, noise, comparisons=2)


def compared(one: Figure, other: Figure, noise: float) -> int:
    """1 if `one` is higher than `other`, -1 if it is lower, 0 if noise explains the difference."""
    return 0 if equal(one, other, noise) else 1 if one.median > other.median else -1


class Ranked(NamedTuple):
    """A place in a ranking; those equal to the one that leads their group share its place."""

    place: int
    name: str
    figure: Figure


def ranking(figures: Mapping[str, Figure], noise: float, *, highest: bool = True) -> list[Ranked]:
    """Names from best to worst; whoever is equal within noise to the first of a group belongs to it."""
    ordered = sorted(figures.items(), key=lambda item: item[1].median, reverse=highest)
    ranked: list[Ranked] = []
    for index, (name, figure) in enumerate(ordered, start=1):
        leader = next((entry for entry in ranked if entry.place == ranked[-1].place), None)
        together = leader is not None and equal(leader.figure, figure, noise)
        ranked.append(Ranked(leader.place if leader and together else index, name, figure))
    return ranked


def pareto(series: Mapping[str, Sequence[Place]], beats: Callable[[Place, Place], bool]) -> dict[str, list[Place]]:
    """Of each name the places that no other place beats."""
    everything = [place for places in series.values() for place in places]
    best = {
        name: [place for place in places if not any(beats(other, place) for other in everything)]
        for name, places in series.items()
    }
    return {name: kept for name, kept in best.items() if kept}
