"""The gate: what passes, what fails, and that it says why."""

from typing import Any

import pytest

from roles.benchmark.benchmark import Benchmark
from roles.benchmark.gate import judge
from roles.benchmark.record import Ceiling, Gpu, Judgement, Prediction, Record, Verdict
from tests.unit.benchmark_records import START, point, record, row

BLOCK = {"concurrencies": [1, 8], "traffic": {"chat": {"input_tokens": 64, "output_tokens": 32}}}


def verdict(measured: Record, *history: Record, references: dict[int, float] | None = None, **block: Any) -> Verdict:
    subject = measured.model_copy(update={"references": references or {}})
    return judge(subject, history, Benchmark.read({**BLOCK, **block}, "tiny.yml"))


def of(subject: str, found: Verdict) -> list[Judgement]:
    return [judgement for judgement in found.judgements if judgement.subject == subject]


def floor(**value: float) -> dict[str, Any]:
    return {"floors": [{"traffic": "chat", "concurrency": 8, **value}]}


def test_a_first_run_is_the_baseline() -> None:
    found = verdict(record([100, 101, 99]))
    assert found.accepted
    assert found.baseline is None
    assert "baseline" in of("regression", found)[0].text


def test_the_median_decides_over_a_floor() -> None:
    assert verdict(record([90, 101, 120]), **floor(tokens_per_second=100)).accepted
    found = verdict(record([90, 99, 120]), **floor(tokens_per_second=100))
    assert not found.accepted
    (missed,) = found.failures
    assert missed.point == "chat C=8"
    assert "99.0 tok/s" in missed.text
    assert "floor 100.0" in missed.text
    assert (missed.measured, missed.limit) == (99, 100)


def test_a_floor_can_be_a_share_of_the_reference() -> None:
    share = floor(share_of_reference=0.9)
    assert verdict(record([91, 91, 91]), references={8: 100.0}, **share).accepted
    found = verdict(record([89, 89, 89]), references={8: 100.0}, **share)
    assert "90% of the reference 100.0" in found.failures[0].text


def test_a_floor_can_be_a_share_of_the_ceiling() -> None:
    ceilings = (Ceiling(traffic="chat", concurrency=8, output_tokens_per_second=200),)
    measured = record([99, 99, 99]).model_copy(update={"prediction": Prediction(ceilings=ceilings)})
    assert verdict(measured, **floor(share_of_ceiling=0.4)).accepted
    assert not verdict(measured, **floor(share_of_ceiling=0.5)).accepted


def test_a_floor_that_cannot_be_judged_fails() -> None:
    found = verdict(record([99, 99, 99]), **floor(share_of_ceiling=0.5))
    assert "no ceiling" in found.failures[0].text


def test_a_latency_limit_holds_for_its_percentile() -> None:
    def limited(percentile: int, milliseconds: float) -> Verdict:
        limit = {"traffic": "chat", "concurrency": 8, "metric": "ttft"}
        limits = [{**limit, "percentile": percentile, "milliseconds": milliseconds}]
        return verdict(record([100, 100, 100]), latency_limits=limits)

    assert limited(50, 80).accepted
    assert not limited(50, 79).accepted
    assert limited(99, 120).accepted
    assert not limited(99, 100).accepted


def test_goodput_is_reported_and_judged_only_if_a_share_is_asked_for() -> None:
    measured = record([100, 100, 100], slo_attainment=0.8)
    assert of("goodput", verdict(measured, goodput={"ttft_ms": 100}))[0].outcome == "noted"
    assert verdict(measured, goodput={"ttft_ms": 100, "share": 0.8}).accepted
    assert not verdict(measured, goodput={"ttft_ms": 100, "share": 0.9}).accepted


def test_a_server_that_fails_a_tenth_of_the_requests_fails() -> None:
    found = verdict(record([100, 100, 100], completed=29))
    assert "29 of 32 requests" in found.failures[0].text
    assert found.failures[0].subject == "completeness"


def test_a_server_that_answers_too_little_fails() -> None:
    assert "512 of 1024 output tokens" in verdict(record([100, 100], total_output_tokens=512)).failures[0].text


def test_a_stalled_round_fails_with_its_cause() -> None:
    measured = record([100, 100])
    stalled = row(point(), 3, 1).model_copy(update={"result": None, "error": "stalled: no end after 1800 seconds"})
    found = verdict(measured.model_copy(update={"rows": (*measured.rows, stalled)}))
    assert "round 3: stalled: no end after 1800 seconds" in found.failures[0].text


def test_a_server_that_could_not_be_measured_fails_with_its_cause() -> None:
    measured = record([]).model_copy(update={"failure": "out of memory while loading"})
    assert verdict(measured).failures[0].text == "out of memory while loading"


def test_a_busy_client_cannot_prove_anything() -> None:
    measured = record([100, 100, 100])
    rows = tuple(
        one.model_copy(update={"client": one.client.model_copy(update={"loop_share": 0.95})})
        for one in measured.rows
        if one.client
    )
    (busy,) = verdict(measured.model_copy(update={"rows": rows})).failures
    assert busy.subject == "client"
    assert "95%" in busy.text


@pytest.mark.parametrize(("rate", "accepted"), [(97, True), (90, False), (110, True)])
def test_a_drop_fails_only_beyond_tolerance_and_noise(rate: float, accepted: bool) -> None:
    before = record([99, 100, 101], accepted=True)
    found = verdict(record([rate - 1, rate, rate + 1], day=1), before)
    assert found.accepted is accepted
    assert found.baseline == before.name
    (regression,) = of("regression", found)
    assert "last accepted 100.0" in regression.text
    assert regression.noise_band is not None


def test_a_tolerance_above_the_noise_lets_more_pass() -> None:
    before = record([100, 100, 100], accepted=True)
    assert verdict(record([85, 85, 85], day=1), before, tolerance=0.2).accepted


def test_a_steady_host_notices_smaller_drops() -> None:
    steady = [record([99.9, 100, 100.1], day=day, accepted=True) for day in range(20)]
    worse = record([93, 93, 93], day=30)
    assert verdict(worse, steady[-1]).accepted
    assert not verdict(worse, *steady).accepted


def test_only_accepted_earlier_records_of_the_family_with_the_same_point_are_compared_with() -> None:
    better = [500.0, 500.0, 500.0]
    others = (
        record(better),
        record(better, day=9, accepted=True),
        record(better, profile="other", accepted=True),
        record({point(1): better}, accepted=True),
    )
    found = verdict(record([100, 100, 100], day=1), *others)
    assert found.accepted
    assert found.baseline is None


def test_the_last_accepted_record_is_the_baseline_not_the_best() -> None:
    history = [record([rate] * 3, day=day, accepted=True) for day, rate in enumerate([150, 100])]
    assert verdict(record([99, 99, 99], day=3), *history).accepted


def test_cached_tokens_and_throttling_are_reported() -> None:
    first, *others = record([100, 100, 100], cache_report={"total_cached_tokens": 64}).rows
    hot = Gpu(index=0, samples=10, throttled={"hardware thermal slowdown": 0.5})
    rows = (first.model_copy(update={"gpus": (hot,)}), *others)
    found = verdict(record([]).model_copy(update={"rows": rows}))
    assert found.accepted
    assert "192 of 6144 prompt tokens" in of("cache", found)[0].text
    assert "hardware thermal slowdown" in of("throttling", found)[0].text


def test_the_cold_round_is_kept_and_never_judged() -> None:
    cold = row(point(), 1, 10).model_copy(update={"judged": False})
    measured = record([100, 100, 100], day=1)
    found = verdict(measured.model_copy(update={"rows": (cold, *measured.rows)}), **floor(tokens_per_second=99))
    assert found.accepted
    assert measured.started > START
