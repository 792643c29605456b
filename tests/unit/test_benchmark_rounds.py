"""The `benchmark:` block, the rounds that follow from it, and the client's command lines."""

from typing import Any, cast

import pytest

from roles.benchmark.benchmark import Benchmark
from roles.benchmark.client import Subject, plan
from roles.benchmark.rounds import Level, Round, points, repeats, warm_ups
from roles.refusal import Refusal
from roles.serve.profile import Profile

SUBJECT = Subject("http://127.0.0.1:30000", "/models/tiny", "/var/lib/slipway/benchmark/x")


def block(**values: Any) -> Benchmark:
    return Benchmark.read(values, "tiny.yml")


def lines(benchmark: Benchmark, level: Level = "full") -> list[list[str]]:
    rounds = cast(list[dict[str, Any]], plan(SUBJECT, benchmark, level, 60)["rounds"])
    return [entry["arguments"] for entry in rounds]


def option(arguments: list[str], name: str) -> str:
    return arguments[arguments.index(name) + 1]


def test_two_shapes_of_traffic_by_default() -> None:
    shapes = block().traffic
    assert list(shapes) == ["chat", "long-prompt"]
    assert shapes["chat"].input_tokens < shapes["long-prompt"].input_tokens


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"concurrencies": []}, "concurrencies takes at least one number"),
        ({"concurrencies": [1, 0]}, "concurrencies takes at least one number"),
        ({"concurrencies": [4, 4]}, "names a number twice"),
        ({"traffic": {}}, "traffic takes at least one shape"),
        ({"repeats": 2}, "repeats: input should be greater than or equal to 3, not 2"),
        (
            {"floors": [{"traffic": "chatt", "concurrency": 1, "tokens_per_second": 1}]},
            "floors names the traffic chatt; did you mean chat?",
        ),
        (
            {"floors": [{"traffic": "chat", "concurrency": 2, "tokens_per_second": 1}]},
            "floors names the concurrency 2, which is not measured; concurrencies: 1, 32, 64",
        ),
        ({"floors": [{"traffic": "chat", "concurrency": 1}]}, "a floor takes exactly one of"),
        ({"goodput": {"share": 0.9}}, "an objective takes at least one of"),
    ],
)
def test_a_wrong_block_is_refused_in_one_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Refusal) as refusal:
        block(**values)
    assert sentence in str(refusal.value)
    assert str(refusal.value).startswith("tiny.yml: ")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("reference", [(), ({"concurrency": 8, "output_tokens_per_second": 1, "source": "x"},)])
def test_a_share_of_a_reference_that_is_not_there_is_refused_before_anything_runs(reference: object) -> None:
    floors = [{"traffic": "chat", "concurrency": 64, "share_of_reference": 0.9}]
    values = {"name": "p", "description": "", "model": "m", "benchmark": {"floors": floors}}
    with pytest.raises(Refusal) as refusal:
        Profile.read({**values, "reference": reference}, "p.yml")
    assert str(refusal.value) == (
        "p.yml: benchmark.floors: share_of_reference at concurrency 64 needs a `reference` of this profile at that "
        "concurrency, which is not inherited"
    )
    Profile.read(
        {**values, "reference": ({"concurrency": 64, "output_tokens_per_second": 1, "source": "x"},)}, "p.yml"
    )


def test_every_round_has_a_seed_of_its_own() -> None:
    benchmark = block(concurrencies=[1, 2, 4, 8, 16, 32, 64, 128], repeats=20)
    rounds = [*repeats(benchmark, "full"), *(one for series in warm_ups(benchmark, "full") for one in series)]
    assert len({one.seed for one in rounds}) == len(rounds)
    assert all(0 <= one.seed < 2**31 for one in rounds)


def test_a_round_has_the_same_seed_in_every_run() -> None:
    """So that a restart is measured with the same prompts."""
    first, *_ = repeats(block(), "full")
    assert Round.model_validate_json(first.model_dump_json()).seed == first.seed


def test_repeats_are_spread_over_the_whole_measurement() -> None:
    order = [(one.number, one.point.concurrency) for one in repeats(block(concurrencies=[1, 8]), "full")]
    assert [number for number, _ in order] == sorted(number for number, _ in order)
    assert order[:2] == [(1, 1), (1, 8)]


def test_quick_keeps_what_a_floor_or_limit_asks_for() -> None:
    floors = [{"traffic": "long-prompt", "concurrency": 4, "tokens_per_second": 1}]
    limits = [{"traffic": "chat", "concurrency": 8, "metric": "ttft", "milliseconds": 1}]
    benchmark = block(concurrencies=[1, 4, 8, 16, 32], floors=floors, latency_limits=limits)
    quick = {(one.traffic, one.concurrency) for one in points(benchmark, "quick")}
    assert quick == {("chat", 1), ("chat", 8), ("chat", 32), ("long-prompt", 4)}
    assert len(points(benchmark, "full")) == 10


def test_quick_sends_half_the_requests_but_fills_every_slot() -> None:
    benchmark = block(concurrencies=[1, 32])
    assert [one.requests for one in points(benchmark, "full")][:2] == [8, 128]
    assert [one.requests for one in points(benchmark, "quick")] == [4, 64]


def test_the_client_works_offline_with_exact_lengths_and_a_flushed_cache() -> None:
    first = lines(block(concurrencies=[4]))[0]
    assert option(first, "--dataset-name") == "random-ids"
    assert option(first, "--tokenizer") == "/models/tiny"
    assert option(first, "--random-range-ratio") == "1"
    assert (option(first, "--random-input-len"), option(first, "--random-output-len")) == ("512", "256")
    assert (option(first, "--num-prompts"), option(first, "--max-concurrency")) == ("16", "4")
    assert {"--flush-cache", "--tokenize-prompt", "--cache-report"} <= set(first)


def test_goodput_is_asked_for_in_the_clients_names() -> None:
    first = lines(block(goodput={"ttft_ms": 500, "e2e_ms": 2000}))[0]
    assert first[first.index("--goodput") + 1 :] == ["ttft:500", "e2el:2000"]


def test_rust_mode_measures_the_same_round() -> None:
    rounds = cast(list[dict[str, Any]], plan(SUBJECT, block(goodput={"ttft_ms": 500}), "full", 60)["rounds"])
    python, rust = rounds[0]["arguments"], rounds[0]["rust_arguments"]
    assert set(rust) - set(python) == {"--rust-client"}
    assert not {"--cache-report", "--goodput"} & set(rust)
    assert option(python, "--seed") == option(rust, "--seed")
