"""Real sweeps: what they find and show, that nothing is measured twice, and that they end where they began."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from roles.benchmark.gate import THROUGHPUT
from roles.benchmark.record import Record
from roles.benchmark.sweep import Sweep
from tests.lab import hosts
from tests.lab.conftest import ROOT, Deploying, Run, deploy, pyinfra, told
from tests.lab.test_benchmark_report import browse, needs_chromium
from tests.lab.test_deploy import serving
from tests.lab.test_switch import enabled

pytestmark = pytest.mark.long

HOST = "lab"
INVENTORY = "inventory"
PORT = 30000
SERVED = "sglang-tiny-tp1.service"
RESULTS = ROOT / "results" / HOST

LISTED = ["tiny-tp1", "tiny-tp2", "tiny-pp2", "tiny-moe-tp2-ep2"]
IMPOSSIBLE = {"server.tp_size": [3]}
KNOBS = {"server.max_running_requests": [4], "server.chunked_prefill_size": [256]}

# What a sweep may leave on a host: records alone.
LEFT = """
ls -A /etc/systemd/system/sglang-*.service /run/systemd/system.control /var/lib/slipway/benchmark
systemctl list-units --all --plain --no-legend 'slipway-*'
cat /var/lib/slipway/good.jsonl
"""


@pytest.fixture(scope="module", autouse=True)
def _a_profile_serves(lab: str) -> None:
    shutil.rmtree(RESULTS / "sweeps", ignore_errors=True)  # of an earlier host of this name
    run = deploy(inventory=INVENTORY)
    assert run.returncode == 0, told(run)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[Callable[[], None]]:
    """Asserts that the host serves as before the test, and that nothing is left behind; also asked at its end."""
    answered, left = answer(), hosts.run(HOST, LEFT)

    def check() -> None:
        assert serving(HOST) == [SERVED]
        assert enabled(HOST) == {SERVED}
        assert answer() == answered
        assert hosts.run(HOST, LEFT) == left

    yield check
    check()


def answer() -> str:
    """A real completion."""
    asked = json.dumps({"model": "tiny", "prompt": "Hello", "max_tokens": 8, "temperature": 0})
    url = f"http://127.0.0.1:{PORT}/v1/completions"
    answered = hosts.run(HOST, f"curl -fsS -H 'Content-Type: application/json' -d '{asked}' {url}")
    return str(json.loads(answered)["choices"][0]["text"])


def options(**variables: object) -> list[str]:
    return [word for name, value in variables.items() for word in ("--data", f"{name}={json.dumps(value)}")]


def sweep(**variables: object) -> Run:
    return pyinfra("-y", INVENTORY, "sweep.py", *options(**variables), timeout=1800)


def sweeping(**variables: object) -> Deploying:
    return Deploying(*options(**variables), inventory=INVENTORY, play="sweep.py")


def last_sweep() -> Sweep:
    path = max((RESULTS / "sweeps").glob("*.json"))
    return Sweep.read_json(path.read_text(), path.name)


def statuses() -> dict[str, str]:
    return {entry.name: entry.status for entry in last_sweep().entries}


def records() -> dict[str, Record]:
    """By name, those on the host, which the controller has, too."""
    names = hosts.run(HOST, "ls /var/lib/slipway/records").split()
    return {name: Record.read_json((RESULTS / name).read_text(), name) for name in names}


def test_one_profile_is_tried_kept_and_not_tried_again() -> None:
    before = records()
    run = sweep(sweep=["tiny-tp1"])
    assert run.returncode == 0, told(run)
    assert "trial 1 of 1, tiny-tp1" in run.stderr
    (new,) = set(records()) - set(before)
    assert records()[new].startup_seconds
    assert [entry.record for entry in last_sweep().entries] == [new]
    again = sweep(sweep=["tiny-tp1"])
    assert again.returncode == 0, told(again)
    assert "chat: peak throughput" in again.stderr
    assert set(records()) == {*before, new}


def test_profiles_are_ranked_and_one_that_fails_or_cannot_be_is_a_result_with_its_cause() -> None:
    run = sweep(sweep=LISTED, vary=IMPOSSIBLE)
    assert run.returncode == 0, told(run)
    for place, name in enumerate(LISTED, start=1):
        assert f"trial {place} of 5, {name}" in run.stderr
    assert re.search(r"trial 4 of 5, tiny-moe-tp2-ep2, about \d:\d\d:\d\d left", run.stderr)
    *measured, failed, skipped = last_sweep().entries
    assert [entry.status for entry in measured] == ["measured"] * 3
    assert (failed.status, skipped.status) == ("failed", "skipped")
    assert "first forward pass" in failed.cause
    assert "3" in skipped.cause
    assert records()[str(failed.record)].log
    for objective in (
        "latency at C=1, ms",
        "throughput at C=1",
        "throughput at C=8",
        "peak throughput",
        "Pareto set",
    ):
        assert f"chat: {objective}" in run.stderr


def test_an_ablation_that_is_interrupted_killed_and_out_of_time_measures_everything_once(
    as_before: Callable[[], None],
) -> None:
    before = records()
    first = sweeping(vary=KNOBS)
    first.until("1 of 6: repeat 1")
    first.interrupt()
    assert first.end() == 1, first.text
    assert "the sweep ended early (interrupted)" in first.text
    assert list(statuses().values()) == ["waiting"] * 4
    as_before()

    second = sweeping(vary=KNOBS)
    second.until("trial 2 of 4")
    second.until("1 of 6: repeat 1")
    second.kill()
    assert list(statuses().values()) == ["measured", "waiting", "waiting", "waiting"]
    assert enabled(HOST) == {SERVED}

    third = sweep(vary=KNOBS, benchmark_sweep_time_limit=1)
    assert third.returncode == 0, told(third)
    assert re.search(r"no time for \d more trials", third.stderr)
    assert "waiting" in statuses().values()
    as_before()

    last = sweep(vary=KNOBS)
    assert last.returncode == 0, told(last)
    assert statuses() == {
        "tiny-tp1": "measured",
        "tiny-tp1.max_running_requests-4": "measured",
        "tiny-tp1.chunked_prefill_size-256": "measured",
        "tiny-tp1.max_running_requests-4.chunked_prefill_size-256": "measured",
    }
    new = [record.profile for name, record in records().items() if name not in before]
    assert Counter(new) == dict.fromkeys(statuses(), 1)


@needs_chromium
def test_the_report_shows_the_sweeps_in_the_browser(tmp_path: Path) -> None:
    document, console = browse(ROOT / "results/report.html", tmp_path, "--dump-dom")
    assert console == ""
    for path in sorted((RESULTS / "sweeps").glob("*.json")):
        state = Sweep.read_json(path.read_text(), path.name)
        for name, record in state.measured(list(records().values())).items():
            assert name in document
            for point in record.points():
                figure = record.figure(point, THROUGHPUT)
                assert figure is not None
                assert f"{figure.median:,.1f}" in document
    for text in ("Effect of each change, chat C=8", "max_running_requests=4", "first forward pass", "Pareto set"):
        assert text in document
