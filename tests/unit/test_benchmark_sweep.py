"""A sweep's memory: what is left to try, what became of the rest, and what makes it another sweep."""

import pytest

from roles.benchmark.benchmark import Benchmark
from roles.benchmark.gate import judge
from roles.benchmark.sweep import Sweep, sweep_key, what_came_of
from roles.benchmark.trials import Trial
from roles.refusal import Refusal
from roles.serve.profile import Profile
from tests.unit.benchmark_records import START, record


def trial(name: str, **changes: object) -> Trial:
    return Trial(Profile.read({"name": name, "description": "", "model": "m"}, f"{name}.yml"), changes)


TRIED = [trial("base"), trial("other")]


def planned(**impossible: list[str]) -> Sweep:
    return Sweep.planned("box", "0123456789ab", TRIED, "ablation", "full", START, impossible)


def test_impossible_trials_are_listed_with_their_reasons_and_not_waited_for() -> None:
    sweep = planned(other=["tp 4 uses 4 of 8 GPUs", "too big"])
    assert [entry.name for entry in sweep.waiting] == ["base"]
    assert sweep.entries[1].status == "skipped"
    assert sweep.entries[1].cause == "tp 4 uses 4 of 8 GPUs; too big"


def test_an_interrupted_sweep_knows_what_it_has() -> None:
    sweep = planned()
    done = sweep.waiting[0].model_copy(update={"status": "measured", "seconds": 90.0})
    resumed = Sweep.read_json(sweep.with_entry(done).model_dump_json(), "x")
    assert [entry.name for entry in resumed.waiting] == ["other"]
    assert resumed.progress(resumed.waiting[0]) == "trial 2 of 2, other, about 0:01:30 left"
    assert sweep.progress(sweep.waiting[0]) == "trial 1 of 2, base"


def test_another_sweep_has_another_key() -> None:
    """Another release changes the fingerprint, another driver the machine, and both what a record would prove."""
    proofs = {"base": "0" * 12, "other": "1" * 12}
    different = [
        (TRIED, proofs, "full"),
        (TRIED, proofs, "quick"),
        (TRIED[:1], proofs, "full"),
        (TRIED, {**proofs, "other": "2" * 12}, "full"),
        ([TRIED[0], trial("other", knob=1)], proofs, "full"),
    ]
    assert len({sweep_key(*one) for one in different}) == len(different)  # type: ignore[arg-type]
    assert sweep_key(TRIED, dict(proofs), "full") == sweep_key(list(TRIED), proofs, "full")


def test_the_name_of_a_sweep_sorts_by_time() -> None:
    assert planned().name == "20261101T000000Z.0123456789ab.json"


@pytest.mark.parametrize("text", ["", "[]", "{", "{}"])
def test_a_file_that_is_no_sweep_is_refused(text: str) -> None:
    with pytest.raises(Refusal, match="x: "):
        Sweep.read_json(text, "x")


def test_a_server_that_does_not_answer_in_full_has_failed_however_fast_it_was() -> None:
    whole, cut = record([100] * 3), record([900] * 3, completed=29)
    outcomes = [
        what_came_of(one.model_copy(update={"verdict": judge(one, [], Benchmark.model_validate({}))}))
        for one in (whole, cut)
    ]
    assert outcomes[0] == ("measured", "")
    assert outcomes[1][0] == "failed"
    assert "completeness chat C=8: round 1: 29 of 32 requests" in outcomes[1][1]


def test_a_missed_floor_is_told_and_is_no_failure_of_a_trial() -> None:
    block = Benchmark.read(
        {"concurrencies": [8], "floors": [{"traffic": "chat", "concurrency": 8, "tokens_per_second": 150}]}, "x"
    )
    slow = record([100] * 3)
    status, cause = what_came_of(slow.model_copy(update={"verdict": judge(slow, [], block)}))
    assert status == "measured"
    assert cause.startswith("floor chat C=8: 100.0 tok/s")
