"""The `benchmark:` block of a profile: what is measured, and what the result must reach. Pure."""

from collections.abc import Iterable
from typing import Literal, Self

from pydantic import Field, model_validator

from roles.documents import Document
from roles.refusal import nearest


class Traffic(Document):
    """A shape of traffic: every request has these lengths, in tokens."""

    input_tokens: int = Field(gt=0)
    output_tokens: int = Field(gt=1)
    """At least 2, for a time per output token (TPOT) to exist."""


class Floor(Document):
    """The output tokens per second that a profile must reach at one concurrency. One of the last three is set."""

    traffic: str
    concurrency: int = Field(gt=0)
    tokens_per_second: float | None = Field(None, gt=0)
    """Output tokens per second, summed over requests."""
    share_of_reference: float | None = Field(None, gt=0)
    """A share of the profile's `reference` at this concurrency: 0.9 is 90 %."""
    share_of_ceiling: float | None = Field(None, gt=0, le=1)
    """A share of what the hardware could reach at this concurrency."""

    @model_validator(mode="after")
    def _one_measure(self) -> Self:
        given = [self.tokens_per_second, self.share_of_reference, self.share_of_ceiling]
        if sum(value is not None for value in given) != 1:
            raise ValueError("a floor takes exactly one of tokens_per_second, share_of_reference, share_of_ceiling")
        return self


class LatencyLimit(Document):
    """A latency that a profile must stay under at one concurrency."""

    traffic: str
    concurrency: int = Field(gt=0)
    metric: Literal["ttft", "tpot", "e2e"]
    """Time to first token, time per output token after it, or the whole request."""
    percentile: Literal[50, 95, 99] = 50
    milliseconds: float = Field(gt=0)


class Goodput(Document):
    """A service level objective (SLO): a request is good if it succeeds within all the limits given."""

    ttft_ms: float | None = Field(None, gt=0)
    tpot_ms: float | None = Field(None, gt=0)
    e2e_ms: float | None = Field(None, gt=0)
    share: float | None = Field(None, gt=0, le=1)
    """The share of requests that must be good, at every concurrency; without it goodput is only reported."""

    @model_validator(mode="after")
    def _some_limit(self) -> Self:
        if self.ttft_ms is None and self.tpot_ms is None and self.e2e_ms is None:
            raise ValueError("an objective takes at least one of ttft_ms, tpot_ms, e2e_ms")
        return self


class Benchmark(Document):
    """The `benchmark:` block of group_vars/profiles/<name>.yml."""

    concurrencies: tuple[int, ...] = (1, 32, 64)
    """How many requests are in flight at once, one measurement for each."""
    traffic: dict[str, Traffic] = Field(
        default_factory=lambda: {
            "chat": Traffic(input_tokens=512, output_tokens=256),
            "long-prompt": Traffic(input_tokens=8192, output_tokens=256),
        }
    )
    """Shapes of traffic by name: a setting can win one and lose another by half."""
    requests_per_slot: int = Field(4, gt=0)
    """Requests of one measurement = this x concurrency, but at least `minimum_requests`."""
    minimum_requests: int = Field(8, gt=1)
    repeats: int = Field(3, ge=3, le=20)
    """Measurements of each kind; fewer than three give no interval."""
    floors: tuple[Floor, ...] = ()
    latency_limits: tuple[LatencyLimit, ...] = ()
    goodput: Goodput | None = None
    tolerance: float = Field(0.05, ge=0, lt=1)
    """A drop against the host's last accepted record up to this share is never a failure."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.concurrencies or min(self.concurrencies) < 1:
            raise ValueError("concurrencies takes at least one number, each 1 or more")
        if len(set(self.concurrencies)) != len(self.concurrencies):
            raise ValueError("concurrencies names a number twice")
        if not self.traffic:
            raise ValueError("traffic takes at least one shape")
        for key, entries in (("floors", self.floors), ("latency_limits", self.latency_limits)):
            self._measured(key, entries)
        return self

    def _measured(self, key: str, entries: Iterable[Floor | LatencyLimit]) -> None:
        for entry in entries:
            if entry.traffic not in self.traffic:
                raise ValueError(f"{key} names the traffic {entry.traffic}; {nearest(entry.traffic, self.traffic)}")
            if entry.concurrency not in self.concurrencies:
                measured = ", ".join(map(str, self.concurrencies))
                raise ValueError(
                    f"{key} names the concurrency {entry.concurrency}, which is not measured; "
                    f"concurrencies: {measured}"
                )

    def requests(self, concurrency: int) -> int:
        """How many requests one measurement at `concurrency` sends."""
        return max(self.minimum_requests, self.requests_per_slot * concurrency)
