"""The role benchmark: when it measures, what it sends, and what a miss means."""

import base64
import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import PyinfraError
from pyinfra.context import host

from inventory import SiteInventory
from inventory.site import Site
from roles.benchmark import measuring
from roles.benchmark.facts import BenchmarkFacts, benchmark_facts
from roles.benchmark.facts import Run as RunOfUnit
from roles.benchmark.operations import verified
from roles.benchmark.proof import proof_of
from roles.benchmark.record import Record
from roles.benchmark.rounds import points
from roles.benchmark.settings import BenchmarkSettings
from roles.files import File
from roles.paths import RECORDS
from roles.serve.candidate import Candidate
from roles.serve.command import Command
from roles.serve.deadline import Start
from roles.serve.profile import Profile
from roles.serve.unit import Neighbours
from roles.weights.model import Model
from tests.plan.conftest import Deploy, Outcome
from tests.unit.benchmark_records import record, row

ROOT = Path(__file__).parents[2]

PROFILE = Profile.read(
    {
        "name": "tiny",
        "description": "",
        "model": "tiny-qwen3",
        "benchmark": {
            "concurrencies": [8],
            "traffic": {"chat": {"input_tokens": 64, "output_tokens": 32}},
            "floors": [{"traffic": "chat", "concurrency": 8, "tokens_per_second": 50}],
        },
    },
    "tiny.yml",
)
CANDIDATE = Candidate(
    profile=PROFILE,
    command=Command(("/opt/slipway/releases/x/bin/sglang", "serve"), (), {"HF_TOKEN": "hunter2"}, 30000),
    unit=File("/etc/systemd/system/sglang-tiny.service", ""),
    neighbours=Neighbours((), ()),
    weights="/srv/models/tiny",
    start=Start(0, on_gpus=False),
)
PROOF = proof_of(CANDIDATE, BenchmarkFacts([], ()))
(POINT,) = points(PROFILE.benchmark, "full")


RUNNING = """\
1793750400.5
ActiveState=active
InactiveExitTimestampMonotonic=1000000
ActiveEnterTimestampMonotonic=24500000"""


def observed(**programs: str) -> str:
    return "".join(f"\n::observed:: {name}\n{text}\n" for name, text in programs.items())


def packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode())).decode()


def output(rate: float) -> str:
    """What the measuring program writes of three rounds at `rate` tokens per second."""
    lines = [row(POINT, number, rate).model_dump_json() for number in (1, 2, 3)]
    return "\n".join([json.dumps({"environment": {}}), *lines, json.dumps({"end": "complete", "server": {}})])


def responses(rate: float = 100, records: str = "", files: Mapping[str, str] | None = None) -> dict[str, str]:
    return {
        "::observed:: records": observed(records=records, gpus=""),
        "::observed:: 2": observed(**(files or {})),
        "output.jsonl": packed(output(rate)),
        "ActiveEnterTimestampMonotonic": RUNNING,
        "uname -s": "Linux",
    }


@pytest.fixture
def run(fake_deploy: Deploy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    model = Model.read(
        {"name": "tiny-qwen3", **yaml.safe_load((ROOT / "group_vars/models/tiny-qwen3.yml").read_text())}, "x"
    )
    site = Site({"tiny-qwen3": model}, {"tiny": PROFILE})

    def run(answers: Mapping[str, str], **settings: Any) -> Outcome:
        data = {"profile": "tiny", "fake_delay": 0, "fake_delay_jitter": 0, "fake_responses": dict(answers)}

        @deploy("benchmark")
        def benchmark() -> None:
            verified(
                name="Prove that the server performs",
                candidates=[CANDIDATE],
                facts=benchmark_facts(host),
                settings=BenchmarkSettings.model_validate(settings),
            )

        return fake_deploy(benchmark, inventory=SiteInventory(site, {"@fake/host": data}, {}, {}))

    return run


def kept(folder: Path) -> list[Record]:
    files = sorted((folder / "results").glob("@fake_host/*.json"))
    return [Record.read_json(path.read_text(), path.name) for path in files]


def test_a_server_without_a_record_is_measured_and_the_record_kept_on_both_sides(run: Any, tmp_path: Path) -> None:
    outcome = run(responses())
    assert outcome.changed == ["benchmark | Prove that the server performs"]
    (one,) = kept(tmp_path)
    assert one.accepted
    assert one.proof == PROOF
    assert one.startup_seconds == 23.5
    assert any(f"{RECORDS}/{one.name}" in command for command in outcome.commands)
    (job,) = [command for command in outcome.commands if "systemd-run" in command]
    assert "exec /opt/slipway/releases/x/bin/python -P /opt/slipway/benchmark.py" in job
    assert "--uid=sglang" in job
    assert "HF_HUB_OFFLINE=1" in job
    assert "BindsTo=sglang-tiny.service" in job
    assert (tmp_path / "results" / "report.html").exists()


def test_a_proven_server_costs_one_command(run: Any) -> None:
    name = f"20261101T000000Z.tiny.{PROOF}.full.accepted.json"
    outcome = run(responses(records=name))
    assert outcome.changed == []
    assert len(outcome.commands) == 1


@pytest.mark.parametrize(
    "name",
    [
        f"20261101T000000Z.tiny.{PROOF}.full.failed.json",
        f"20261101T000000Z.tiny.{PROOF}.quick.accepted.json",
        "20261101T000000Z.tiny.aaaaaaaaaaaa.full.accepted.json",
    ],
)
def test_other_records_prove_nothing(run: Any, name: str) -> None:
    assert run(responses(records=name)).changed


def test_off_measures_nothing(run: Any, tmp_path: Path) -> None:
    assert run(responses(), level="off").changed == []
    assert kept(tmp_path) == []


def test_a_server_can_be_measured_again(run: Any) -> None:
    name = f"20261101T000000Z.tiny.{PROOF}.full.accepted.json"
    assert run(responses(records=name), again=True).changed


def test_a_missed_floor_fails_the_run_and_its_record_is_kept(run: Any, tmp_path: Path) -> None:
    with pytest.raises(PyinfraError):
        run(responses(rate=49))
    (one,) = kept(tmp_path)
    assert not one.accepted
    assert one.name.endswith(".full.failed.json")


def test_a_drop_against_the_hosts_last_record_fails_the_run(run: Any, tmp_path: Path) -> None:
    before = record({POINT: [200, 200, 200]}, accepted=True)
    with pytest.raises(PyinfraError):
        run(responses(records=before.name, files={before.name: packed(before.to_json())}))
    (one,) = kept(tmp_path)
    assert one.verdict is not None
    assert [failure.subject for failure in one.verdict.failures] == ["regression"]
    assert one.verdict.baseline == before.name


def test_a_broken_record_on_the_host_is_passed_over(run: Any, tmp_path: Path) -> None:
    before = record({POINT: [200, 200, 200]}, accepted=True)
    assert run(responses(records=before.name, files={before.name: packed(before.to_json()[:99])})).changed
    assert kept(tmp_path)[0].accepted


def test_a_measurement_that_was_cut_off_fails_with_its_cause(run: Any, tmp_path: Path) -> None:
    answers: dict[str, Any] = {"systemd-run": {"success": False, "stdout": "ended with: timeout"}, **responses()}
    answers["output.jsonl"] = packed(output(100).rpartition("\n")[0])
    with pytest.raises(PyinfraError):
        run(answers)
    (one,) = kept(tmp_path)
    assert one.failure is not None
    assert one.failure.startswith("the measuring program did not end well")


def test_a_server_that_dies_while_it_is_measured_is_explained_by_its_journal(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = RunOfUnit("active", 1, 2, "1793750400.5")
    runs = iter([alive, replace(alive, state="activating", began=3)])
    monkeypatch.setattr(measuring, "last_run", lambda *_: next(runs))
    journal = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 672.00 MiB."
    answers = {"journalctl --sync": journal, **responses()}
    answers["output.jsonl"] = packed(output(100).replace('"complete"', '"the client ended: ConnectionError"'))
    with pytest.raises(PyinfraError):
        run(answers)
    (one,) = kept(tmp_path)
    assert one.failure is not None
    assert one.failure.startswith("sglang-tiny.service ended while it was measured: out of ")
    assert journal in one.log[-1]


def test_a_server_that_is_stopped_while_it_is_measured_proves_nothing(run: Any, tmp_path: Path) -> None:
    """The measuring program ends with the unit, which systemd takes for a success."""
    answers = responses()
    answers["output.jsonl"] = packed(output(100).rpartition("\n")[0])
    with pytest.raises(PyinfraError):
        run(answers)
    assert kept(tmp_path)[0].failure == "the server was stopped while it was measured"


def test_no_secret_of_the_servers_environment_is_kept(run: Any, tmp_path: Path) -> None:
    run(responses())
    assert "hunter2" not in kept(tmp_path)[0].to_json()
    assert kept(tmp_path)[0].environment.variables == {"HF_TOKEN": "(redacted)"}
