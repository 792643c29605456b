"""Which rounds of requests a measurement consists of, in which order, each with a seed of its own. Pure."""

import hashlib
from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from roles.benchmark.benchmark import Benchmark
from roles.documents import Document

Level = Literal["quick", "full"]
Mode = Literal["ablation", "grid"]
"""What a sweep makes of the values that its knobs can take."""

WARM_UP_ROUNDS = 4
"""At most this many rounds are spent on waiting for two that agree."""


class Point(Document):
    """What one figure is about. Figures of equal points can be compared, others cannot."""

    traffic: str
    input_tokens: int = Field(gt=0)
    output_tokens: int = Field(gt=0)
    concurrency: int = Field(gt=0)
    requests: int = Field(gt=0)

    def __str__(self) -> str:
        return f"{self.traffic} C={self.concurrency}"


class Round(Document):
    """One run of the client. The warm-up counts its rounds from 0, the repeats count from 1."""

    point: Point
    phase: Literal["warm-up", "measured"]
    number: int = Field(ge=0)

    @property
    def seed(self) -> int:
        """A repeated seed would repeat its prompts, which the server's prefix cache then answers."""
        text = f"{self.point.model_dump_json()} {self.phase} {self.number}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) >> 1


def points(benchmark: Benchmark, level: Level) -> list[Point]:
    """What is measured at `level`, by traffic, then by concurrency."""
    asked = {(floor.traffic, floor.concurrency) for floor in benchmark.floors}
    asked |= {(limit.traffic, limit.concurrency) for limit in benchmark.latency_limits}
    first = next(iter(benchmark.traffic))
    ends = {(first, min(benchmark.concurrencies)), (first, max(benchmark.concurrencies))}
    return [
        Point(
            traffic=name,
            input_tokens=shape.input_tokens,
            output_tokens=shape.output_tokens,
            concurrency=concurrency,
            requests=_requests(benchmark, concurrency, level),
        )
        for name, shape in benchmark.traffic.items()
        for concurrency in sorted(benchmark.concurrencies)
        if level == "full" or (name, concurrency) in asked | ends
    ]


def _requests(benchmark: Benchmark, concurrency: int, level: Level) -> int:
    whole = benchmark.requests(concurrency)
    return whole if level == "full" else max(concurrency, whole // 2, 2)


def warm_ups(benchmark: Benchmark, level: Level) -> list[list[Round]]:
    """For each traffic its warm-up, at the highest concurrency, which compiles and fills most."""
    highest = {point.traffic: point for point in points(benchmark, level)}
    return [
        [Round(point=point, phase="warm-up", number=number) for number in range(WARM_UP_ROUNDS)]
        for point in highest.values()
    ]


def repeats(benchmark: Benchmark, level: Level) -> Iterator[Round]:
    """Every point once, then every point again: a slow drift of the host spreads over all of them."""
    for number in range(1, benchmark.repeats + 1):
        for point in points(benchmark, level):
            yield Round(point=point, phase="measured", number=number)
