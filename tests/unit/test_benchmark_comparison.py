"""How servers compare: rankings, the Pareto set, and what a host's own noise makes equal."""

from roles.benchmark.comparison import pareto_set, rankings
from roles.benchmark.noise import host_noise
from roles.benchmark.record import Record
from roles.benchmark.statistics import RESTART_NOISE
from roles.benchmark.sweep import Entry, Sweep
from roles.benchmark.table import sweep_table
from tests.unit.benchmark_records import START, point, record

THROUGHPUT = "output_throughput"


def measured() -> dict[str, Record]:
    """Output tokens per second for one request and for 64."""
    rates = {"tp8": (26.3, 693), "ep8": (65.3, 795), "pp8": (36.9, 396), "ep8b": (65.0, 810)}
    return {
        name: record(
            {point(1): [alone] * 3, point(64): [many, many * 1.01, many * 0.99]},
            profile=name,
            median_e2e_latency_ms=32_000 / alone,
        )
        for name, (alone, many) in rates.items()
    }


def restless(swing: float) -> list[Record]:
    """Twenty starts of one server, whose throughput swings by this share."""
    return [
        record({point(64): [100 * (1 + swing * (-1) ** day)] * 3}, day=day, accepted=True, profile="old")
        for day in range(20)
    ]


def places(history: list[Record]) -> dict[str, list[tuple[int, str]]]:
    found = rankings(measured(), history)
    return {ranking.objective: [(place.place, place.name) for place in ranking.places] for ranking in found}


def test_each_objective_has_a_ranking_of_its_own_with_equals_side_by_side() -> None:
    found = places([])
    assert found["chat: latency at C=1"] == [(1, "ep8"), (1, "ep8b"), (3, "pp8"), (4, "tp8")]
    assert found["chat: throughput at C=64"] == [(1, "ep8b"), (1, "ep8"), (3, "tp8"), (4, "pp8")]
    assert found["chat: peak throughput"][0] == (1, "ep8b")


def test_a_sweep_takes_for_equal_what_this_hosts_own_restarts_make_equal() -> None:
    assert places(restless(0.1))["chat: throughput at C=64"] == [(1, "ep8b"), (1, "ep8"), (1, "tp8"), (4, "pp8")]
    assert places(restless(0.001))["chat: throughput at C=64"] == [(1, "ep8b"), (1, "ep8"), (3, "tp8"), (4, "pp8")]


def test_noise_is_learnt_from_accepted_starts_of_one_server_at_one_point() -> None:
    known = RESTART_NOISE[THROUGHPUT]
    assert host_noise(restless(0.1), THROUGHPUT, [point(64)]) > 0.09
    assert host_noise(restless(0.1), THROUGHPUT, [point(1)]) == known
    others = [one.model_copy(update={"fingerprint": f"{day:016}"}) for day, one in enumerate(restless(0.1))]
    assert host_noise(others, THROUGHPUT, [point(64)]) == known
    failed = [one.model_copy(update={"verdict": None}) for one in restless(0.1)]
    assert host_noise(failed, THROUGHPUT, [point(64)]) == known


def test_the_pareto_set_holds_who_is_best_at_something() -> None:
    assert set(pareto_set(measured(), [], "chat")) == {"ep8", "ep8b"}


def test_noise_alone_beats_nobody() -> None:
    """tp8 is 14 % slower than ep8b at 64 requests, which on a restless host is no difference."""
    assert "tp8" in pareto_set(measured(), restless(0.1), "chat")
    assert "tp8" not in pareto_set(measured(), restless(0.001), "chat")


def test_the_table_of_a_sweep_fits_the_terminal_and_names_causes() -> None:
    records = list(measured().values())
    entries = [Entry(name=one.profile, status="measured", record=one.name, seconds=75.2) for one in records]
    crashed = Entry(
        name="k26-ep8.max_running_requests-128.chunked_prefill_size-4096",
        status="failed",
        cause="[bold]out of memory",
    )
    sweep = Sweep(
        key="0", host="box", base=None, mode="grid", level="full", started=START, entries=(*entries, crashed)
    )
    text = sweep_table(sweep, records)
    assert max(map(len, text.splitlines())) <= 80
    assert "[bold]out of memory" in text
    assert "0:01:15" in text
    assert "…" not in text
    assert "1. ep8b  810.0" in text
    assert "ep8b C=64" in text
