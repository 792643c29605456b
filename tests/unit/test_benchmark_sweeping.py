"""A sweep on a host of which only the units are made up: what is tried, what remains, and how it ends."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from roles.benchmark import keeping, sweeping
from roles.benchmark.facts import BenchmarkFacts
from roles.benchmark.record import Record
from roles.benchmark.results import RESULTS
from roles.benchmark.settings import BenchmarkSettings
from roles.benchmark.sweep import Sweep
from roles.benchmark.sweeping import Plan
from roles.benchmark.trials import Trial
from roles.files import File
from roles.remote import ConnectionLost, RemoteError
from roles.serve import steps
from roles.serve.candidate import Candidate
from roles.serve.command import Command
from roles.serve.deadline import Start
from roles.serve.declared import Declared
from roles.serve.facts import ServeFacts
from roles.serve.good import Acceptance
from roles.serve.interruption import Interrupted
from roles.serve.profile import Profile
from roles.serve.unit import Neighbours, UnitState, unit_name
from tests.unit.benchmark_records import START, record


def profile(name: str) -> Profile:
    return Profile.read({"name": name, "description": "", "model": "m"}, f"{name}.yml")


def candidate(name: str) -> Candidate:
    unit = File(f"/etc/systemd/system/{unit_name(name)}", name)
    command = Command(("/opt/slipway/releases/x/bin/sglang", name), (), {}, 30000)
    return Candidate(profile(name), command, unit, Neighbours((), ()), "/srv/m", Start(0, on_gpus=False))


class Machine:
    """A host with units of which one serves."""

    name = "box"

    def __init__(self) -> None:
        self.units = {"sglang-served.service": self.unit("served", active=True, enabled=True)}
        self.starts: list[str] = []
        self.fails: dict[str, Exception] = {}
        self.dies: dict[str, Exception] = {}
        self.reconnected = 0
        self.said: list[str] = []

    def unit(self, name: str, *, active: bool, enabled: bool = False) -> UnitState:
        return UnitState(enabled, "active" if active else "inactive", False, candidate(name).command.fingerprint)

    def facts(self, _: Any) -> ServeFacts:
        fingerprint = candidate("served").command.fingerprint
        accepted = Acceptance(at=datetime(2026, 11, 1, tzinfo=UTC), profiles={"served": fingerprint})
        return ServeFacts({}, dict(self.units), [accepted])

    def stop(self, _: Any, names: Sequence[str]) -> None:
        for name in names:
            self.units[name] = self.units[name]._replace(active="inactive")

    def start_unit(self, _: Any, name: str) -> None:
        self.starts.append(name.removeprefix("sglang-").removesuffix(".service"))
        if error := self.fails.get(self.starts[-1]):
            raise error
        known = self.units.get(name)
        self.units[name] = self.unit(self.starts[-1], active=True, enabled=bool(known and known.enabled))

    def serving(self) -> list[str]:
        return [name for name, unit in self.units.items() if unit.runs]

    def reconnect(self, _: Any) -> None:
        self.reconnected += 1

    def log(self, text: str) -> None:
        self.said.append(text)

    def log_styled(self, text: str, **_: Any) -> None:
        self.said.append(text)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    monkeypatch.chdir(tmp_path)
    one = Machine()
    nothing: Callable[..., None] = lambda *_, **__: None  # noqa: E731
    ours = SimpleNamespace(
        SwitchError=steps.SwitchError,
        check_released=nothing,
        smoke=nothing,
        put_back=nothing,
        stop=one.stop,
        start_unit=one.start_unit,
        start=lambda host, trial, _: one.start_unit(host, trial.unit_name),
    )

    def verify(host: Any, trial: Candidate, settings: BenchmarkSettings) -> Record:
        if error := one.dies.get(trial.profile.name):
            raise error
        measured = record([100.0, 101.0, 99.0], profile=trial.profile.name, accepted=True)
        path = RESULTS / host.name / measured.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(measured.to_json())
        return measured

    for name, value in {
        "serve_facts": one.facts,
        "preparation": SimpleNamespace(check_port=nothing, check_deadline=nothing),
        "steps": ours,
        "check_weights": nothing,
        "verify": verify,
        "reconnect": one.reconnect,
        "run": lambda *_: "taken",
    }.items():
        monkeypatch.setattr(sweeping, name, value)
    monkeypatch.setattr(keeping, "run", nothing)
    monkeypatch.setattr(keeping, "benchmark_facts", lambda _: BenchmarkFacts([], ()))
    monkeypatch.setattr("roles.benchmark.report.write_report", nothing)
    return one


def sweep(machine: Any, names: Sequence[str], monkeypatch: pytest.MonkeyPatch, **settings: Any) -> tuple[bool, Sweep]:
    given = BenchmarkSettings.model_validate(settings)
    monkeypatch.setattr(BenchmarkSettings, "of", lambda _: given)
    tried = [Trial(profile(name), {}) for name in names]
    unsuitable = {"impossible": ["it needs 8 GPUs"]}
    declaration = Declared({name: candidate(name) for name in names}, unsuitable, tight={})
    folder = RESULTS / "box" / "sweeps"
    kept = [Sweep.read_json(path.read_text(), path.name) for path in folder.glob("*.json")]
    state = kept[0] if kept else Sweep.planned("box", "0" * 12, tried, "ablation", "full", START, unsuitable)
    ended = sweeping.sweep(machine, Plan(tried, declaration, state))
    (path,) = folder.glob("*.json")
    return ended, Sweep.read_json(path.read_text(), path.name)


def outcome(state: Sweep) -> dict[str, str]:
    return {entry.name: entry.status for entry in state.entries}


def test_every_trial_is_made_and_what_served_serves_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended, state = sweep(machine, ["b", "c"], monkeypatch)
    assert ended
    assert outcome(state) == {"b": "measured", "c": "measured"}
    assert machine.starts == ["b", "c", "served"]
    assert machine.serving() == ["sglang-served.service"]
    assert "chat: peak throughput" in capsys.readouterr().err


@pytest.mark.parametrize("error", [steps.SwitchError, RemoteError])
def test_a_trial_that_crashes_is_a_result_with_its_cause(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    machine.fails["b"] = error("sglang-b.service did not start\nout of memory: 672 MiB asked\nthe journal:\n  CUDA")
    ended, state = sweep(machine, ["b", "c"], monkeypatch)
    assert ended
    assert outcome(state) == {"b": "failed", "c": "measured"}
    failed = state.entries[0]
    assert failed.cause == "sglang-b.service did not start: out of memory: 672 MiB asked"
    kept = Record.read_json((RESULTS / "box" / str(failed.record)).read_text(), "x")
    assert kept.failure == failed.cause
    assert kept.log == ("the journal:", "  CUDA")
    assert machine.serving() == ["sglang-served.service"]


@pytest.mark.parametrize("error", [ConnectionLost("the connection was lost"), OSError("no space left on device")])
def test_what_is_not_the_trials_fault_is_no_result(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    machine.dies["c"] = error
    ended, state = sweep(machine, ["b", "c"], monkeypatch)
    assert not ended
    assert outcome(state) == {"b": "measured", "c": "waiting"}
    assert machine.serving() == ["sglang-served.service"]
    assert machine.reconnected == isinstance(error, ConnectionLost)
    assert any(f"the sweep ended early ({error})" in text for text in machine.said)


def test_an_impossible_trial_is_never_started(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    _, state = sweep(machine, ["impossible", "b"], monkeypatch)
    assert outcome(state) == {"impossible": "skipped", "b": "measured"}
    assert "impossible" not in machine.starts


def test_an_interrupted_sweep_restores_and_goes_on_later(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.fails["c"] = Interrupted("SIGINT")
    ended, state = sweep(machine, ["b", "c"], monkeypatch)
    assert not ended
    assert outcome(state) == {"b": "measured", "c": "waiting"}
    assert machine.serving() == ["sglang-served.service"]
    machine.fails.clear()
    machine.starts.clear()
    ended, state = sweep(machine, ["b", "c"], monkeypatch)
    assert ended
    assert outcome(state) == {"b": "measured", "c": "measured"}
    assert machine.starts == ["c", "served"]


def test_a_sweep_out_of_time_begins_no_further_trial(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 50))
    monkeypatch.setattr(sweeping, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    ended, state = sweep(machine, ["b", "c", "d"], monkeypatch, sweep_time_limit=2)
    assert ended
    assert outcome(state) == {"b": "measured", "c": "waiting", "d": "waiting"}
    assert any("no time for 2 more trials" in text for text in machine.said)
    assert machine.serving() == ["sglang-served.service"]


def test_a_host_that_cannot_be_restored_fails_the_run(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.fails["served"] = steps.SwitchError("sglang-served.service did not start")
    ended, _ = sweep(machine, ["b"], monkeypatch)
    assert not ended
    assert "could not be started again" in machine.said[-1]


def test_nothing_enabled_means_nothing_serves_in_the_end(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.units = {}
    ended, _ = sweep(machine, ["b"], monkeypatch)
    assert ended
    assert machine.serving() == []
