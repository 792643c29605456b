"""Variables of the role benchmark."""

from typing import ClassVar, Literal

from pydantic import Field

from roles.settings import RoleSettings


class BenchmarkSettings(RoleSettings):
    """How thoroughly a served profile is measured; what it must reach is in the profile's own `benchmark:`."""

    prefix: ClassVar[str] = "benchmark_"

    level: Literal["quick", "full", "off"] = "full"
    """`quick` leaves out what no floor or limit asks for and sends half the requests; `off` measures nothing."""
    again: bool = False
    """Measure although an accepted record proves this server: every such record makes the noise band truer."""
    round_limit: int = Field(1800, ge=10)
    """Seconds after which one round of requests counts as stalled and ends the measurement."""
