"""Records made up for the tests of the role benchmark."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from roles.benchmark.record import Judgement, Record, Row, Verdict
from roles.benchmark.rounds import Point, Round

START = datetime(2026, 11, 1, tzinfo=UTC)
ACCEPTED = Verdict(judgements=(Judgement(subject="floor", point="", outcome="passed", text=""),))


def point(concurrency: int = 8, traffic: str = "chat") -> Point:
    return Point(traffic=traffic, input_tokens=64, output_tokens=32, concurrency=concurrency, requests=32)


def row(at: Point, number: int, rate: float, **result: object) -> Row:
    return Row.read(
        {
            "round": Round(point=at, phase="measured", number=number),
            "judged": True,
            "started": START,
            "seconds": 5.0,
            "result": {
                "completed": at.requests,
                "total_input_tokens": at.requests * at.input_tokens,
                "total_output_tokens": at.requests * at.output_tokens,
                "output_throughput": rate,
                "median_ttft_ms": 80.0,
                "p99_ttft_ms": 120.0,
                "median_tpot_ms": 1000 * at.concurrency / rate,
                "p99_tpot_ms": 1500 * at.concurrency / rate,
                **result,
            },
            "client": {"mode": "python", "loop_share": 0.1, "loop_delay_p99_ms": 3.0, "cpu_share": 0.2},
        },
        "a test",
    )


def record(
    rates: Sequence[float] | Mapping[Point, Sequence[float]],
    day: int = 0,
    profile: str = "tiny",
    fingerprint: str = "0123456789abcdef",
    accepted: bool = False,
    **result: Any,
) -> Record:
    """A record with one row for each rate, in output tokens per second."""
    series = rates if isinstance(rates, Mapping) else {point(): rates}
    return Record(
        host="box",
        profile=profile,
        model="tiny-qwen3",
        fingerprint=fingerprint,
        proof="0123456789ab",
        family=f"{profile} on the CPU",
        level="full",
        started=START + timedelta(days=day),
        finished=START + timedelta(days=day, minutes=2),
        rows=tuple(
            row(at, number, rate, **result)
            for at, values in series.items()
            for number, rate in enumerate(values, start=1)
        ),
        verdict=ACCEPTED if accepted else None,
    )
