"""The role serve: the steps of a switch in their order, and what is left alone."""

from collections.abc import Callable
from typing import Any

import pytest
from pyinfra.api.config import Config
from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.host import Host
from pyinfra.api.state import State

from inventory import load
from roles.paths import STATE
from roles.remote import ConnectionLost, RemoteError
from roles.serve import switch
from roles.serve.candidate import Candidate
from roles.serve.declared import Declared, declared
from roles.serve.good import GOOD_HISTORY
from roles.serve.profile import Profile
from roles.serve.steps import LAST_FAILURE, SwitchError
from roles.serve.tasks import serve
from roles.serve.unit import TRIED, UNITS
from tests.plan.conftest import Deploy
from tests.unit.shipped import ROOT
from tests.unit.test_serve import history

OLD, NEW = "sglang-tiny-tp1.service", "sglang-tiny-tp2.service"
START = "roles.serve.start"
SMOKE = {"smoke.py": '{"passed": true, "reasons": [], "seconds": 1, "memory": {}}'}
GOING_BACK = (f"rm -f {TRIED}/", f"/good/$unit {UNITS}/$unit")
FAILING = {START: {"success": False, "stdout": "300 s of at most 300 s: not ready in time"}}


class Switching:
    """A deploy of serve to a host on which OLD was accepted."""

    def __init__(self, fake_deploy: Deploy, monkeypatch: pytest.MonkeyPatch) -> None:
        self._deploy = fake_deploy
        self.failures: list[tuple[str, str]] = []
        self.commands: list[str] = []
        self.gate: Callable[[Host, Candidate], None] = lambda host, candidate: None
        for name in ("check_weights", "compare_memory"):
            monkeypatch.setattr(switch, name, lambda *_: None)
        self.said: list[str] = []
        monkeypatch.setattr(switch, "_say", lambda host, text: self.said.append(text))

    def declared(self, **variables: object) -> Declared:
        inventory = self._inventory({}, **variables)
        State(inventory, Config())
        return declared(next(iter(inventory)))

    def _inventory(self, responses: dict[str, Any], **variables: object) -> Any:
        data = {"fake_delay": 0, "fake_delay_jitter": 0, "fake_responses": responses, "hardware": {"gpus": 0}}
        return load("@fake/host", {"profile": "tiny-tp2", **data, **variables}, root=ROOT)

    def run(self, *units: str, responses: dict[str, Any] | None = None, **variables: object) -> list[str]:
        """The commands of a deploy to a host with these units, which may fail."""
        one = self.declared().candidates["tiny-tp1"]
        old = f"{OLD} enabled active no {one.command.fingerprint} current"
        accepted = history({"tiny-tp1": one.command.fingerprint})[0]
        seen = {"files": "", "units": "\n".join(units or [old]), "history": accepted, "credentials": ""}
        observed = "".join(f"\n::observed:: {name}\n{text}\n" for name, text in seen.items())
        answers = {"::observed:: units": observed, **(responses or {}), **SMOKE, "uname -s": "Linux"}
        inventory = self._inventory(answers, **variables)

        def keep_failure(host: Host, candidate: Candidate, began: object, reason: str) -> None:
            self.failures.append((candidate.profile.name, reason))
            self.commands.append("keep_failure")

        @deploy("everything")
        def everything() -> None:
            (host,) = inventory
            host.connector.executed_commands = self.commands
            serve(gate=self.gate, keep_failure=keep_failure)

        try:
            self._deploy(everything, inventory=inventory)
        except PyinfraError:
            self.commands.append("failed")
        return self.commands


@pytest.fixture
def switching(fake_deploy: Deploy, monkeypatch: pytest.MonkeyPatch) -> Switching:
    return Switching(fake_deploy, monkeypatch)


def place(commands: list[str], *parts: str) -> int:
    """Which of the commands is the first with all these parts."""
    return next(number for number, command in enumerate(commands) if all(part in command for part in parts))


def absent(commands: list[str], *parts: str) -> bool:
    return not any(all(part in command for part in parts) for command in commands)


def test_a_switch_goes_step_by_step_and_what_a_boot_starts_comes_last(switching: Switching) -> None:
    switching.gate = lambda host, candidate: switching.commands.append("gate")
    commands = switching.run()
    steps = [
        place(commands, "sport = :30000", "pid="),
        place(commands, f"systemctl stop {OLD}"),
        place(commands, f"mv {TRIED}/.{NEW}.new {TRIED}/{NEW}"),
        place(commands, START, NEW),
        place(commands, "smoke.py", "http://"),
        place(commands, "gate"),
        place(commands, f"mv {GOOD_HISTORY}.new", f"systemctl enable --quiet {NEW}"),
        place(commands, f"mv {UNITS}/.{OLD}.new {UNITS}/{OLD}"),
    ]
    assert steps == sorted(steps)
    assert "failed" not in commands


def test_a_start_under_way_is_joined(switching: Switching) -> None:
    fingerprint = switching.declared().candidates["tiny-tp2"].command.fingerprint
    commands = switching.run(
        f"{OLD} enabled inactive no none current", f"{NEW} disabled activating no {fingerprint} current"
    )
    assert place(commands, START, NEW) < place(commands, f"mv {GOOD_HISTORY}.new")
    assert absent(commands, "systemctl stop")
    assert absent(commands, f"{TRIED}/{NEW}", "base64")


def test_a_start_under_way_of_another_server_is_not_joined(switching: Switching) -> None:
    commands = switching.run(f"{OLD} enabled inactive no none current", f"{NEW} disabled activating no 0123 current")
    assert place(commands, f"systemctl stop {NEW}") < place(commands, START, NEW)


def test_a_failure_is_undone_and_then_kept(switching: Switching) -> None:
    commands = switching.run(responses={f"{START} {NEW}": FAILING[START]})
    steps = [
        place(commands, START, NEW),
        place(commands, f"systemctl stop {NEW}"),
        place(commands, *GOING_BACK),
        place(commands, LAST_FAILURE),
        place(commands, "keep_failure"),
        commands.index("failed"),
    ]
    assert steps == sorted(steps)
    assert absent(commands, f"mv {GOOD_HISTORY}.new")
    assert absent(commands, f"{UNITS}/.{OLD}.new", "base64")
    ((name, reason),) = switching.failures
    assert name == "tiny-tp2"
    assert reason.startswith(f"{NEW} did not start\nnot ready in time: ")


def test_gpus_that_do_not_exchange_values_end_the_switch_before_a_start(
    switching: Switching, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(host: Host, profile: Profile) -> None:
        switching.commands.append("exchange")
        raise RemoteError("the GPUs do not exchange values")

    monkeypatch.setattr(switch, "check_collective", failing)
    commands = switching.run()
    assert place(commands, f"systemctl stop {OLD}") < commands.index("exchange") < place(commands, *GOING_BACK)
    assert absent(commands, START, NEW)
    assert "the switch failed: the GPUs do not exchange values" in switching.said


def test_a_disk_too_slow_for_the_limit_is_found_before_anything_stops(switching: Switching) -> None:
    commands = switching.run(responses={"iflag=direct": "1000"})
    assert absent(commands, "systemctl stop")
    assert "failed" in commands
    assert "as its disk is slow" in switching.said[0]
    switching.commands.clear()
    assert place(switching.run(serve_ready_limit=86400), START, NEW, '"86400"')


def test_a_full_disk_is_found_before_anything_stops(switching: Switching) -> None:
    commands = switching.run(responses={"/.room": STATE})
    assert absent(commands, "systemctl stop")
    assert "failed" in commands
    assert f"nothing more can be written to {STATE}: " in switching.said[0]


def test_a_server_that_answers_wrongly_is_explained_by_its_journal(switching: Switching) -> None:
    failed = {"success": False, "stdout": '{"passed": false, "reasons": ["no answer"]}'}
    died = "Subprocess scheduler_0 (pid=7) crashed with exit code -9. Triggering SIGQUIT for cleanup..."
    switching.run(responses={"smoke.py http": failed, "journalctl --unit": died})
    ((_, reason),) = switching.failures
    assert reason.startswith(
        "tiny-tp2 does not answer as it must:\nno answer\nits journal says:\na process was killed: "
    )


@pytest.mark.parametrize(("lock", "goes_back"), [("taken", True), ("held you@there since 10:00:00 UTC", False)])
def test_after_a_lost_connection_it_goes_back_unless_the_host_is_another_runs(
    switching: Switching, monkeypatch: pytest.MonkeyPatch, lock: str, goes_back: bool
) -> None:
    def lost(host: Host, candidate: Candidate) -> None:
        switching.commands.append("lost")
        raise ConnectionLost("the connection was lost")

    switching.gate = lost
    monkeypatch.setattr(switch, "reconnect", lambda host: None)
    commands = switching.run(responses={"deploy.lock": lock})
    after = commands[commands.index("lost") :]
    assert absent(after, *GOING_BACK) is not goes_back
    assert absent(after, LAST_FAILURE) is not goes_back
    assert "failed" in after


def test_a_gate_that_fails_has_kept_its_own_record(switching: Switching) -> None:
    def missed(host: Host, candidate: Candidate) -> None:
        raise SwitchError("the benchmark: too slow")

    switching.gate = missed
    commands = switching.run()
    assert place(commands, START, NEW) < place(commands, *GOING_BACK)
    assert switching.failures == []
