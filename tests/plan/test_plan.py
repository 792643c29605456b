"""plan.py as pyinfra runs it: for hosts that answer and for hosts that do not."""

import json
import runpy
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyinfra.api.config import Config
from pyinfra.api.connect import connect_all
from pyinfra.api.state import State, StateStage
from pyinfra.connectors.fake import FakeConnector
from pyinfra.context import ctx_host, ctx_state

from inventory import load
from inventory.reaching import connect_where_possible

ROOT = Path(__file__).parents[2]


@pytest.fixture
def nobody() -> Iterator[int]:
    """A port on which nobody listens: it is bound, so that nobody else takes it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def run(source: Path, monkeypatch: pytest.MonkeyPatch, *options: str, **data: object) -> tuple[int, list[str]]:
    """plan.py's exit code, and every command that was sent to a host."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", ["pyinfra", str(source), "plan.py", *options])
    inventory = load(str(source), data)
    connect_where_possible(inventory)
    state = State(inventory, Config())
    connect_all(state)
    state.set_stage(StateStage.Prepare)
    (host,) = inventory
    with ctx_state.use(state), ctx_host.use(host), pytest.raises(SystemExit) as end:
        runpy.run_path("plan.py")
    fakes = [host.connector for host in inventory if isinstance(host.connector, FakeConnector)]
    return int(end.value.code or 0), [str(command) for fake in fakes for command in fake.executed_commands]


def absent(folder: Path, port: int) -> Path:
    """An inventory of one host that does not exist, with declared hardware."""
    file = folder / "hosts.yml"
    host = f"{{ansible_host: 127.0.0.1, ansible_port: {port}}}"
    file.write_text(f"rtx_pro_6000_x8: {{hosts: {{future: {host}}}}}\n")
    return file


def test_a_host_that_does_not_exist_yet_is_planned(
    tmp_path: Path, nobody: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(absent(tmp_path, nobody), monkeypatch, "--json", profile="k26-ep8-tuned")[0] == 0
    host = json.loads(capsys.readouterr().out)["hosts"]["future"]
    assert "Unable to connect" in host["unreachable"]
    assert host["chosen"]["profiles"] == ["k26-ep8-tuned"]
    assert host["chosen"]["refusals"] == []
    assert host["chosen"]["changes"] is None
    assert any("num_continuous_decode_steps" in warning for warning in host["chosen"]["warnings"])


def test_a_wanted_profile_that_would_be_refused_ends_with_1(
    tmp_path: Path, nobody: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(absent(tmp_path, nobody), monkeypatch, profile="tiny-tp1")[0] == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "A deploy would refuse tiny-tp1: - tiny-tp1: it serves on the CPU, and the host has GPUs" in said


def test_tight_memory_needs_to_be_accepted(
    tmp_path: Path, nobody: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = {"profile": "k26-tp8", "hardware": {"gpus": 8, "memory_mib": 94000, "compute_capability": "12.0"}}
    assert run(absent(tmp_path, nobody), monkeypatch, **wanted)[0] == 1
    assert "its memory is tight" in capsys.readouterr().out
    assert run(absent(tmp_path, nobody), monkeypatch, serve_accept_tight=True, **wanted)[0] == 0


def test_the_previous_profile_is_known_to_the_host_alone(
    tmp_path: Path, nobody: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(absent(tmp_path, nobody), monkeypatch, profile="previous")[0] == 1
    assert "only the host knows" in capsys.readouterr().out


BARE = [
    *("::observed:: files", "::observed:: units", "::observed:: history", "::observed:: weights"),
    *("::observed:: token", "::observed:: rsync"),
    *("::observed:: machine", "x86_64", "::observed:: python", "3.11.2", "::observed:: free", "99999999999"),
    *("::observed:: uv", "::observed:: release"),
]
"""What a host without anything of Slipway's answers to every observation."""


def test_a_host_that_answers_is_asked_and_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host = {"fake_delay": 0, "fake_delay_jitter": 0, "fake_responses": {"::observed::": "\n".join(BARE)}}
    (tmp_path / "hosts.yml").write_text(json.dumps({"lab": {"hosts": {"@fake/one": host}}}))
    code, commands = run(tmp_path / "hosts.yml", monkeypatch)
    assert code == 0
    said = capsys.readouterr().out
    assert "- install the release 0.5.23-" in said
    assert "- make the model tiny-qwen3" in said
    assert "- start sglang-tiny-tp1.service" in said
    assert "Expected downtime: none." in said
    assert commands
    assert all("::observed::" in command for command in commands)
