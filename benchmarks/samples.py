"""What was measured."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """How long Slipway may take: this share of another's time, and this many seconds."""

    other: str
    share: float = 1.0
    more: float = 0.0

    def __str__(self) -> str:
        return f"{self.more:g} s more" if self.more else f"{self.share:g}x {self.other}"


@dataclass(frozen=True)
class Comparison:
    """One thing done by several tools in turn."""

    what: str
    seconds: Mapping[str, Sequence[float]]
    """Of each run, by tool."""
    goals: Sequence[Goal] = ()

    def median(self, tool: str) -> float:
        return statistics.median(self.seconds[tool])

    def share(self, other: str) -> float:
        """How long Slipway takes, as a share of the other's time."""
        return self.median("Slipway") / self.median(other)

    def meets(self, goal: Goal) -> bool:
        return self.median("Slipway") <= goal.share * self.median(goal.other) + goal.more
