"""plan.py as pyinfra runs it: for hosts that answer and for hosts that do not."""

import json
import re
import runpy
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.config import Config
from pyinfra.api.connect import connect_all
from pyinfra.api.state import State, StateStage
from pyinfra.connectors.fake import FakeConnector
from pyinfra.context import ctx_host, ctx_state

from inventory import load
from inventory.reaching import connect_where_possible
from roles.preflight.exchange import exchange_of
from roles.serve.buffers import GIB
from roles.serve.exact import Answer
from roles.sglang.release import Release
from roles.weights.config_files import config_files
from roles.weights.layout import directory
from roles.weights.model import Model
from roles.weights.settings import WeightsSettings
from tests.unit.shipped import ROOT, site
from tests.unit.sites import write

HOSTS = ROOT / "tests/unit/data/hosts"

QWEN = """\
    description: Qwen3 8B on one GPU.
    model: qwen3-8b
    gpus: [0]
    server: {mem_fraction_static: 0.85}
    """


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
    *("::observed:: credentials", "::observed:: token", "::observed:: rsync"),
    *("::observed:: machine", "x86_64", "::observed:: python", "3.11.2", "::observed:: free", "99999999999"),
    *("::observed:: uv", "::observed:: release", "::observed:: gpus", "::observed:: programs", "::observed:: proofs"),
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


def answering(folder: Path, *, declared: bool = True, recorded: str = "rtx_pro_6000_x8", **responses: str) -> Path:
    """An inventory of one host with GPUs that answers: `responses` by the name of an observation's first program."""
    looks = {f"::observed:: {name.replace('_', '-')}": text for name, text in responses.items()}
    looks["::observed:: nvidia-smi"] = re.sub(r"\x1b\[\d*m", "", (HOSTS / f"{recorded}.txt").read_text())
    looks["::observed::"] = "\n".join(BARE)
    host = {"fake_delay": 0, "fake_delay_jitter": 0, "fake_responses": looks}
    group = "rtx_pro_6000_x8" if declared else "others"
    (folder / "hosts.yml").write_text(json.dumps({group: {"hosts": {"@fake/one": host}}}))
    return folder / "hosts.yml"


def planned(capsys: pytest.CaptureFixture[str]) -> Any:
    """The document of the host @fake/one."""
    return json.loads(capsys.readouterr().out)["hosts"]["@fake/one"]


def of_profile(document: Any, name: str) -> Any:
    return next(entry for entry in document["profiles"] if entry["profile"] == name)


def test_gpus_that_nobody_declared_are_planned_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = run(answering(tmp_path, declared=False), monkeypatch, "--json", profile="k26-tp8")
    document = planned(capsys)
    assert code == 0
    assert document["hardware"]["gpus"] == 8
    assert of_profile(document, "k26-tp8")["memory"]["verdict"] == "OK"
    assert "start sglang-k26-tp8.service" in document["chosen"]["changes"]


def test_an_exchange_of_values_between_the_servers_is_said_unless_it_succeeded_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    units = "\n::observed:: units\nsglang-k26-tp8.service enabled active no older current"
    old = f"::observed:: files{units}\n::observed:: history\n::observed:: credentials"
    run(answering(tmp_path, files=old), monkeypatch, "--json", profile="k26-tp8")
    assert planned(capsys)["chosen"]["exchange_seconds"] == 180
    exchange = exchange_of(site().profiles["k26-tp8"], gpus=8, release=Release.of("0.5.23").directory, environment={})
    assert exchange is not None
    proofs = f"::observed:: proofs\n{exchange.identity('595.71.05')}"
    used = f"::observed:: gpus\n595.71.05\n::observed:: programs\n1234\n{proofs}"
    run(answering(tmp_path, files=old, gpus=used), monkeypatch, "--json", profile="k26-tp8")
    chosen = planned(capsys)["chosen"]
    assert chosen["exchange_seconds"] == 0
    assert chosen["downtime_seconds"] > 600


def test_what_the_preflight_would_refuse_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(answering(tmp_path, recorded="lost_gpu"), monkeypatch, "--json", profile="k26-tp8")[0] == 1
    refusals = planned(capsys)["chosen"]["refusals"]
    assert any("Xid 79" in refusal for refusal in refusals)


def whole(model: Model) -> str:
    """A host's answer that it has the weights of `model`."""
    folder = {"bytes": 1, "used": False, "digest": "d"}
    looked = {"free": 10**13, "folders": {directory(WeightsSettings.model_validate({}), model): folder}}
    return "\n".join(["::observed:: weights", json.dumps(looked), "::observed:: token", "::observed:: rsync"])


def checkpoint(model: Model, of: Model, problems: Sequence[str] = ()) -> str:
    """A host's answer that the weights of `model` are in fact those `of` another."""
    held = {
        "folder": directory(WeightsSettings.model_validate({}), model),
        "files": config_files(of),
        "bytes": 1,
        "tensors": {"model.layers.N.mlp.up_proj.weight BF16": {"count": 1, "bytes": 1}},
        "problems": list(problems),
    }
    return f"::observed:: checkpoints\n{json.dumps(held)}"


def test_what_the_weights_on_the_host_say_wins_over_the_declaration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    declared = site().models["qwen3-8b"]
    write(tmp_path, {"group_vars/profiles/qwen.yml": QWEN})
    larger = declared.architecture.model_copy(update={"num_hidden_layers": 48})
    there = checkpoint(declared, declared.model_copy(update={"architecture": larger}))
    inventory = answering(tmp_path, weights=whole(declared), checkpoints=there)
    run(inventory, monkeypatch, "--json", profile="qwen")
    found = of_profile(planned(capsys), "qwen")["memory"]["weights_bytes"]
    run(absent(tmp_path, 1), monkeypatch, "--json", profile="qwen")
    [estimated] = json.loads(capsys.readouterr().out)["hosts"].values()
    assert found > 1.2 * of_profile(estimated, "qwen")["memory"]["weights_bytes"]


def test_weights_that_are_no_model_are_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    declared = site().models["qwen3-8b"]
    write(tmp_path, {"group_vars/profiles/qwen.yml": QWEN})
    cut = checkpoint(declared, declared, ["/w/model.safetensors: truncated: it has 3 of 4 bytes"])
    inventory = answering(tmp_path, weights=whole(declared), checkpoints=cut)
    assert run(inventory, monkeypatch, "--json", profile="qwen")[0] == 1
    document = planned(capsys)
    assert document["chosen"]["refusals"] == ["qwen: /w/model.safetensors: truncated: it has 3 of 4 bytes"]
    assert not of_profile(document, "qwen")["suits"]


def test_exact_figures_stand_beside_the_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = [
        Answer("k26-pp8", 0, "0.5.23", weights=70 * GIB, kv_bytes_per_token=100),
        Answer("k26-pp8", 1, "0.5.23", weights=74 * GIB, kv_bytes_per_token=200),
        Answer("k26-tp8", 0, "0.5.23", refusal="ValueError: no"),
    ]
    said = "\n".join(["::observed:: exact", *(answer.line() for answer in answers)])
    wanted = {"profile": "k26-tp8", "plan_exact": True}
    run(answering(tmp_path, exact=said), monkeypatch, **wanted)
    lines = capsys.readouterr().out.splitlines()
    [exact] = [line.split() for line in lines if line.startswith("  k26-pp8 ") and "%" in line]
    assert exact[:2] == ["k26-pp8", "74.00"]
    assert exact[4] == "200"
    assert "SGLang would not start k26-tp8: ValueError: no" in lines
    run(answering(tmp_path, exact=said), monkeypatch, "--json", **wanted)
    assert of_profile(planned(capsys), "k26-pp8")["exact"]["weights_bytes"] == 74 * GIB


def test_exact_figures_need_a_release(
    tmp_path: Path, nobody: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = {"profile": "k26-tp8", "plan_exact": True}
    run(answering(tmp_path, exact="::observed:: exact"), monkeypatch, **wanted)
    assert "No exact figures: the release 0.5.23-" in capsys.readouterr().out
    run(absent(tmp_path, nobody), monkeypatch, **wanted)
    assert "No exact figures: the host was not reached" in capsys.readouterr().out
