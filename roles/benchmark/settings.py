"""Variables of the role benchmark."""

from typing import ClassVar, Literal

from pydantic import Field

from roles.benchmark.rounds import Level, Mode
from roles.settings import RoleSettings


class BenchmarkSettings(RoleSettings):
    """How thoroughly a served profile is measured; what it must reach is in the profile's own `benchmark:`."""

    prefix: ClassVar[str] = "benchmark_"

    level: Literal["quick", "full", "off"] = "full"
    """`quick` leaves out what no floor or limit asks for and sends half the requests; `off` measures nothing."""
    again: bool = False
    """Measure although an accepted record proves this server, and make a finished sweep once more: every record
    makes the noise band truer."""
    round_limit: int = Field(1800, ge=10)
    """Seconds after which one round of requests counts as stalled and ends the measurement."""
    sweep_mode: Mode = "ablation"
    """`ablation` tries the base, each change of `vary` alone, and the first value of every knob together;
    `grid` tries every combination."""
    sweep_time_limit: int | None = Field(None, gt=0)
    """Minutes after which a sweep begins no further trial; run again, it goes on from there."""

    @property
    def depth(self) -> Level:
        """The level of a measurement that is made in any case, as a sweep's are."""
        return "quick" if self.level == "quick" else "full"
