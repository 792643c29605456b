"""What a sweep tries: listed profiles, and what its knobs make of a base."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from roles.benchmark import trials as made
from roles.benchmark.rounds import Mode
from roles.benchmark.trials import Trial
from roles.refusal import Refusal
from roles.serve.profile import Profile
from roles.serve.unit import unit_name
from roles.sglang.catalogue import Catalogue

SERVER = {"tp_size": 8, "max_running_requests": 64}
BASE = Profile.read({"name": "base", "description": "", "model": "m", "server": SERVER}, "base.yml")
OTHER = BASE.model_copy(update={"name": "other", "server": {"pp_size": 8}})
KNOBS: dict[str, Any] = {"server.max_running_requests": [128, 256], "environment.NCCL_P2P_LEVEL": ["SYS"]}


def trials(base: Profile, vary: Mapping[str, object], listed: Sequence[Profile], mode: Mode) -> list[Trial]:
    return made.trials(base, vary, listed, mode, Catalogue.load("0.5.23"))


def names(tried: list[Trial]) -> list[str]:
    return [trial.name for trial in tried]


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


def test_a_floor_by_the_reference_of_the_base_is_not_asked_of_a_variation() -> None:
    floors = [{"traffic": "chat", "concurrency": 64, key: 0.9} for key in ("share_of_reference", "share_of_ceiling")]
    base = Profile.read(
        {
            **BASE.model_dump(),
            "benchmark": {"floors": floors},
            "reference": [{"concurrency": 64, "output_tokens_per_second": 577.8, "source": "elsewhere"}],
        },
        "base.yml",
    )
    first, varied = trials(base, {"server.max_running_requests": [128]}, [], "ablation")
    assert len(first.profile.benchmark.floors) == 2
    assert [floor.share_of_ceiling for floor in varied.profile.benchmark.floors] == [0.9]
