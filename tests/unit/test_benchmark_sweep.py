"""Sweeps: what is tried, what is remembered, and how it is compared."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from roles.benchmark import sweep as sweeps
from roles.benchmark.record import Record
from roles.benchmark.rounds import Mode
from roles.benchmark.sweep import Sweep, Trial, key, pareto_set, rankings
from roles.benchmark.table import ranking_table
from roles.refusal import Refusal
from roles.serve.profile import Profile
from roles.serve.unit import unit_name
from roles.sglang.catalogue import Catalogue
from tests.unit.benchmark_records import START, point, record

SERVER = {"tp_size": 8, "max_running_requests": 64}
BASE = Profile.read({"name": "base", "description": "", "model": "m", "server": SERVER}, "base.yml")
OTHER = BASE.model_copy(update={"name": "other", "server": {"pp_size": 8}})
KNOBS: dict[str, Any] = {"server.max_running_requests": [128, 256], "environment.NCCL_P2P_LEVEL": ["SYS"]}


def trials(base: Profile, vary: Mapping[str, object], listed: Sequence[Profile], mode: Mode) -> list[Trial]:
    return sweeps.trials(base, vary, listed, mode, Catalogue.load("0.5.23"))


def names(tried: list[Trial]) -> list[str]:
    return [trial.name for trial in tried]


def planned(tried: list[Trial], **impossible: list[str]) -> Sweep:
    return Sweep.planned("box", tried, "ablation", "full", START, impossible)


def test_an_ablation_tries_the_base_each_change_alone_and_all_together() -> None:
    tried = trials(BASE, KNOBS, [], "ablation")
    assert [dict(trial.changes) for trial in tried] == [
        {},
        {"server.max_running_requests": 128},
        {"server.max_running_requests": 256},
        {"environment.NCCL_P2P_LEVEL": "SYS"},
        {"server.max_running_requests": 128, "environment.NCCL_P2P_LEVEL": "SYS"},
    ]
    assert tried[0].profile is BASE
    assert tried[1].profile.server == {"tp_size": 8, "max_running_requests": 128}
    assert tried[4].profile.environment == {"NCCL_P2P_LEVEL": "SYS"}


def test_a_grid_tries_every_combination() -> None:
    knobs: dict[str, Any] = {"server.tp_size": [4, 8], "server.max_running_requests": [64, 128, 256]}
    tried = trials(BASE, knobs, [], "grid")
    assert len(tried) == 6
    assert {(t.profile.server["tp_size"], t.profile.server["max_running_requests"]) for t in tried} == {
        (tp, requests) for tp in (4, 8) for requests in (64, 128, 256)
    }


def test_parallelism_sets_several_flags_at_once() -> None:
    tried = trials(
        BASE, {"parallelism": [{"tp_size": 8, "ep_size": 8}, {"tp_size": 1, "pp_size": 8}]}, [], "ablation"
    )
    assert [trial.profile.server for trial in tried[1:]] == [
        {"tp_size": 8, "max_running_requests": 64, "ep_size": 8},
        {"tp_size": 1, "max_running_requests": 64, "pp_size": 8},
    ]


def test_listed_profiles_come_first_and_nothing_is_tried_twice() -> None:
    assert names(trials(BASE, {}, [OTHER, BASE, OTHER], "ablation")) == ["other", "base"]
    assert names(trials(BASE, {"server.max_running_requests": [64]}, [OTHER], "ablation")) == ["other", "base"]


def test_a_trial_has_a_name_that_systemd_takes() -> None:
    (*_, last) = trials(BASE, {"server.cuda_graph_config": [{"a b": "/x"}], "environment.A": ["{}"]}, [], "grid")
    assert set(unit_name(last.name)) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:-_.")


@pytest.mark.parametrize(
    ("vary", "sentence"),
    [
        ({"server.tp_size": 8}, "vary: server.tp_size: takes a list of values, not 8"),
        ({"server.tp_size": []}, "vary: server.tp_size: takes a list of values"),
        ({"max_running_requests": [1]}, "vary: max_running_requests: no key of a profile that can vary"),
        ({"sever.tp_size": [1]}, "vary: sever.tp_size: no key of a profile that can vary"),
        ({"parallelism": [8]}, "vary: parallelism: takes flags such as"),
        (
            {"server.max_runing_requests": [64]},
            "vary: server.max_runing_requests: SGLang 0.5.23 has no such flag; did you mean max_running_requests?",
        ),
        ({"server.tp_size": [8, "4"]}, "vary: server.tp_size: accepted is an integer; not '4'"),
        ({"server.host": ["::"]}, "vary: server.host: not set in a profile; it is the variable serve_host"),
        ({"parallelism": [{"tp": 8}]}, "vary: server.tp: not a full name; SGLang 0.5.23 has tp_size"),
        ({"environment.A": ["a b", "a-b"]}, "vary: two trials would be called base.A-a-b; write values that differ"),
        ({"benchmark.repeats": [1]}, "vary: benchmark.repeats: input should be greater than or equal to 3"),
    ],
)
def test_what_cannot_vary_is_refused_by_name(vary: dict[str, object], sentence: str) -> None:
    with pytest.raises(Refusal) as refusal:
        trials(BASE, vary, [], "ablation")
    assert sentence in str(refusal.value)


def test_impossible_trials_are_listed_with_their_reasons_and_not_waited_for() -> None:
    sweep = planned(trials(BASE, {}, [BASE, OTHER], "ablation"), other=["tp 4 uses 4 of 8 GPUs", "too big"])
    assert [entry.name for entry in sweep.waiting] == ["base"]
    assert sweep.entries[1].status == "skipped"
    assert sweep.entries[1].cause == "tp 4 uses 4 of 8 GPUs; too big"


def test_an_interrupted_sweep_knows_what_it_has() -> None:
    sweep = planned(trials(BASE, {}, [BASE, OTHER], "ablation"))
    done = sweep.waiting[0].model_copy(update={"status": "measured", "seconds": 90.0})
    resumed = Sweep.read_json(sweep.with_entry(done).model_dump_json(), "x")
    assert [entry.name for entry in resumed.waiting] == ["other"]
    assert resumed.progress(resumed.waiting[0]) == "trial 2 of 2, other, about 0:01:30 left"
    assert sweep.progress(sweep.waiting[0]) == "trial 1 of 2, base"


def test_another_sweep_has_another_key() -> None:
    one = trials(BASE, KNOBS, [], "ablation")
    changed = trials(BASE.model_copy(update={"environment": {"A": "1"}}), KNOBS, [], "ablation")
    assert len({key(one, "full"), key(one, "quick"), key(changed, "full"), key(one[:2], "full")}) == 4
    assert key(one, "full") == key(trials(BASE, KNOBS, [], "ablation"), "full")


@pytest.mark.parametrize("text", ["", "[]", "{", "{}"])
def test_a_file_that_is_no_sweep_is_refused(text: str) -> None:
    with pytest.raises(Refusal, match="x: "):
        Sweep.read_json(text, "x")


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


def test_each_objective_has_a_ranking_of_its_own_with_equals_side_by_side() -> None:
    places = {ranking.objective: [(p.place, p.name) for p in ranking.places] for ranking in rankings(measured())}
    assert places["chat: latency at C=1"] == [(1, "ep8"), (1, "ep8b"), (3, "pp8"), (4, "tp8")]
    assert places["chat: throughput at C=64"] == [(1, "ep8b"), (1, "ep8"), (3, "tp8"), (4, "pp8")]
    assert places["chat: peak throughput"][0] == (1, "ep8b")


def test_the_pareto_set_holds_who_is_best_at_something() -> None:
    assert set(pareto_set(measured(), "chat")) == {"ep8", "ep8b"}


def test_the_table_of_a_sweep_fits_the_terminal_and_names_causes() -> None:
    sweep = planned(trials(BASE, {}, [BASE, OTHER], "ablation"), other=["[bold]out of memory"])
    text = ranking_table(sweep, rankings(measured()))
    assert max(map(len, text.splitlines())) <= 80
    assert "[bold]out of memory" in text
    assert "1. ep8b  810.0" in text
