"""The harness for real GPUs, tried on a release, a driver and a GPU that are small programs of this test."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from roles.preflight.hardware import Hardware
from roles.serve.memory import Verdict, estimate
from roles.serve.parallelism import Parallelism, check
from tests.gpu.__main__ import main
from tests.gpu.cases import READY, cases
from tests.gpu.documents import cut, model, profile, text_only

H200 = Hardware(gpus=1, gpu="NVIDIA H200", memory_mib=143771, compute_capability="9.0")
RELEASE = Path(__file__).parent / "data" / "gpu" / "release.py"
NVIDIA_SMI = """\
#!/bin/sh
case $1 in
    --query-gpu=index*) echo "0, 00000000:01:00.0, NVIDIA H200, 143771, 9.0, 580.1, 700, 700, Enabled, Enabled, Disabled, 5, 16, 5, 16" ;;
    --query-gpu=memory.used) echo 4 ;;
esac
"""  # noqa: E501 -- one line of nvidia-smi


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Run":
    return Run(tmp_path, monkeypatch)


class Run:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        programs = folder / "bin"
        programs.mkdir()
        (programs / "python").symlink_to(sys.executable)
        for name, text in (
            ("sglang", f"#!/bin/sh\nexec {sys.executable} {RELEASE} $@\n"),
            ("nvidia-smi", NVIDIA_SMI),
        ):
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")

    def __call__(self, *chosen: str) -> tuple[int, dict[str, object]]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        words = ["--runtime", str(self.folder / "bin/python"), "--port", str(port), *chosen]
        status = main([*words, "--out", str(self.folder / "out")])
        return status, json.loads((self.folder / "out/results.jsonl").read_text())


def test_a_server_is_held_against_its_estimate_and_leaves_nothing(run: Run) -> None:
    status, outcome = run("--case", "dense")

    assert (status, outcome["came"], outcome["left after the stop"]) == (0, READY, "")
    figures = {name: (predicted, reported) for name, predicted, reported in outcome["figures"]}  # type: ignore[attr-defined]
    assert figures["KV bytes per token"] == (147456, pytest.approx(147456, abs=5))
    assert figures["free at start"] == (pytest.approx(139.2, abs=0.01), pytest.approx(139.2, abs=0.1))
    assert outcome["outside its band"] == []
    # What each rank says of itself, to the byte.
    assert figures["tp 0 pp 0 weights"] == (16381470720, 16381470724)
    assert figures["tp 0 pp 0 KV bytes per token"] == (147456, pytest.approx(147456, abs=5))


@pytest.mark.parametrize("name", ["unknown-flag", "port-in-use"])
def test_a_failure_is_explained_as_on_a_host(run: Run, name: str) -> None:
    status, outcome = run("--case", name)

    assert (status, outcome["came"]) == (0, outcome["expected"])


def test_a_failure_that_nobody_expected_is_told(run: Run) -> None:
    assert run("--case", "dense-too-low")[0] == 1


def test_a_shipped_profile_is_served_with_fewer_layers(run: Run) -> None:
    _, outcome = run("--profile", "k26-tp8", "--dummy-layers", "2")
    config = json.loads((run.folder / "out/work/k26-tp8/model/config.json").read_text())

    assert outcome["came"] == READY
    assert (config["num_hidden_layers"], config["hidden_size"]) == (2, 7168)
    assert "--tp-size" in outcome["command"]  # type: ignore[operator]


def test_a_model_is_spread_over_all_gpus_in_every_way() -> None:
    eight = [case for case in cases(H200.model_copy(update={"gpus": 8})) if case not in cases(H200)]

    assert [case.name for case in eight] == ["int4-tp", "int4-tp-ep", "int4-pp", "int4-attn-dp", "int4-tp-pp"]
    assert {Parallelism.of(case.profile.server).gpus for case in eight} == {8}
    assert all(not check(case.profile, case.model, H200.model_copy(update={"gpus": 8})) for case in eight)


def test_what_is_expected_of_an_edge_is_what_the_estimate_says() -> None:
    for case in cases(H200):
        verdict = estimate(case.model, case.profile, H200).verdict
        if "out of memory" in case.expected or "fraction" in case.expected:
            assert verdict is Verdict.NO, case.name
        else:
            assert verdict is not Verdict.NO, case.name


def test_a_cut_model_keeps_its_width() -> None:
    whole = model(profile("k26-ep8").model)
    few = cut(text_only(whole), 3)

    assert few.architecture.num_hidden_layers == 3
    assert few.architecture.hidden_size == whole.architecture.hidden_size
    assert few.quantization == whole.quantization


def test_ranks_that_report_at_once_do_not_cut_each_others_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = "from tests.gpu.rank_report import say\nfor _ in range(3000): say('rank holds: {}')"
    with log.open("ab") as output:
        ranks = [subprocess.Popen([sys.executable, "-u", "-c", program], stdout=output) for _ in range(4)]
    assert [rank.wait() for rank in ranks] == [0] * 4

    assert set(log.read_text().splitlines()) == {"rank holds: {}"}
