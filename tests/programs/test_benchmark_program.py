"""The measuring program, with a stand-in for SGLang's client: what it does when a round is not as it should be."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from roles.benchmark import program
from roles.benchmark.benchmark import Benchmark
from roles.benchmark.client import Subject, plan
from roles.benchmark.output import Output, read_output

BLOCK = {"concurrencies": [2], "traffic": {"chat": {"input_tokens": 8, "output_tokens": 4}}}


def measured(folder: Path, behaviour: str, path: str = "", round_limit: float = 60) -> tuple[Output, str, int]:
    """What the program wrote, what it showed, and its exit status."""
    subject = Subject("http://127.0.0.1:9", "/models/tiny", str(folder))
    steps = plan(subject, Benchmark.read(BLOCK, "tiny.yml"), "full", 60)
    # A busy loop reaches full load only where nothing else wants the processor, an idle one is near zero anywhere.
    steps |= {"module": "benchmark_client", "round_limit": round_limit, "busy_client": 0.15}
    (folder / "plan.json").write_text(json.dumps(steps))
    environment = {
        "PYTHONPATH": str(Path(__file__).with_name("data")),
        "PATH": f"{path}:{os.environ['PATH']}",
        "FAKE_CLIENT": behaviour,
    }
    command = [sys.executable, "-P", program.__file__, str(folder / "plan.json")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return read_output(Path(subject.output).read_text().splitlines(), "output"), done.stdout, done.returncode


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> tuple[Output, str, int]:
    """A measurement without trouble, beside a recorded answer of nvidia-smi."""
    folder = tmp_path_factory.mktemp("steady")
    answer = "0, 2600, 14001, 580.5, 84, 99, 90000, 0x0000000000000024\\n1, 2700, 14001, [N/A], 70, 98, 90000, 0x1\\n"
    smi = folder / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\ncase $* in *loop-ms*) while printf '{answer}'; do sleep 0.05; done;; esac\n")
    smi.chmod(0o755)
    return measured(folder, "steady", path=str(folder))


def test_a_measurement_is_whole_and_shows_its_progress(steady: tuple[Output, str, int]) -> None:
    output, shown, status = steady
    assert status == 0
    assert output.end == "complete"
    assert [(row.round.phase, row.round.number, row.judged) for row in output.rows] == [
        ("warm-up", 0, False),
        ("warm-up", 1, False),
        ("measured", 1, True),
        ("measured", 2, True),
        ("measured", 3, True),
    ]
    assert "2 of 3: repeat 2, chat C=2: 100.0 tok/s, TTFT 80 ms, TPOT 10.0 ms" in shown
    assert "what the client prints" not in shown
    assert all(row.result and "server_info" not in row.result for row in output.rows)


def test_an_idle_client_is_seen_to_be_idle(steady: tuple[Output, str, int]) -> None:
    for row in steady[0].rows:
        assert row.client is not None
        assert row.client.mode == "python"
        assert row.client.loop_share is not None
        assert row.client.loop_share < 0.15


def test_gpus_are_sampled_while_the_rounds_run(steady: tuple[Output, str, int]) -> None:
    """GPU 0 is throttled, GPU 1 does not tell its power."""
    first, second = steady[0].rows[-1].gpus
    assert (first.index, first.sm_clock_mhz, first.power_w, first.temperature_c) == (0, 2600, 580.5, 84)
    assert first.throttled == {"software power cap": 1, "software thermal slowdown": 1}
    assert (second.power_w, second.throttled) == (None, {})
    assert first.samples > 1


def test_the_warm_up_goes_on_until_two_rounds_agree(tmp_path: Path) -> None:
    output, _, _ = measured(tmp_path, "cold")
    rates = [row.value("output_throughput") for row in output.rows if row.round.phase == "warm-up"]
    assert rates == [pytest.approx(33.3, abs=0.1), pytest.approx(66.7, abs=0.1), 100.0, 100.0]


def test_a_client_that_cannot_keep_up_is_replaced_by_its_rust_mode(tmp_path: Path) -> None:
    output, _, _ = measured(tmp_path, "busy")
    first = output.rows[0]
    assert first.client is not None
    assert first.client.loop_share is not None
    assert first.client.loop_share > 0.15
    judged = [row for row in output.rows if row.judged]
    assert len(judged) == 3
    assert all(row.client and row.client.mode == "rust" and row.result and row.result["rust"] for row in judged)


@pytest.mark.parametrize(
    ("behaviour", "cause"),
    [
        ("stalls", "stalled: no end after 0.5 seconds"),
        ("crashes", "the client ended: ValueError: Warmup failed"),
        ("silent", "the client wrote no result"),
    ],
)
def test_a_round_that_fails_ends_the_measurement_with_its_cause(tmp_path: Path, behaviour: str, cause: str) -> None:
    output, shown, status = measured(tmp_path, behaviour, round_limit=0.5 if behaviour == "stalls" else 60)
    assert status == 1
    (row,) = output.rows
    assert row.error is not None
    assert row.error.startswith(cause)
    assert row.judged
    assert output.end == row.error
    assert "what the client prints is not progress" in output.log
    assert cause in shown


def test_the_watch_sees_only_the_time_that_the_row_is_about() -> None:
    watch = program.Watch()
    # Two seconds of loading at full load, then one second of measuring at a tenth.
    watch.beats = [(t / 10, t / 10, t / 10, 0.0) for t in range(21)]
    watch.beats += [(2 + t / 10, 2 + t / 100, 2 + t / 100, 0.01 * t) for t in range(1, 11)]
    summary = watch.summary(duration=1.0)
    assert summary is not None
    assert summary["loop_share"] == pytest.approx(0.1)
    assert summary["loop_delay_p99_ms"] == pytest.approx(100)
