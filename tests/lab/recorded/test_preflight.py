"""`pyinfra inventory preflight.py` against hosts that answer as recorded."""

import json
from pathlib import Path

import pytest

from tests.lab.conftest import pyinfra, told
from tests.lab.recorded import become
from tests.lab.recorded.conftest import write_inventory


@pytest.fixture
def inventory(host: str, tmp_path: Path) -> str:
    return write_inventory(tmp_path, hardware={"gpus": 8, "pcie_width": 16})


@pytest.mark.parametrize("recorded", ["rtx_pro_6000_x8", "h200_x8", "untuned"])
def test_a_host_that_can_serve_is_ready(host: str, inventory: str, recorded: str) -> None:
    become(host, recorded)
    run = pyinfra(inventory, "preflight.py", "--json")
    assert run.returncode == 0, told(run)
    assert json.loads(run.stdout)["ok"] is True


@pytest.mark.parametrize(
    ("recorded", "found", "expected", "remedy"),
    [
        ("lost_gpu", "of 8 GPUs 0000:a1:00.0 does not answer the driver", "all to answer", "power-cycle the host"),
        ("narrow_link", "GPU 0000:61:00.0 runs on 8 PCIe lanes", "16", "reseat the card and its riser"),
        ("garbage", "of 8 GPUs 0000:01:00.0 and 7 more does not answer", "all to answer", "look for NVRM"),
        ("bare", "no NVIDIA driver is loaded", "580.65.06 or newer", "set `cuda_driver: manage`"),
        pytest.param(
            *("hanging", "nvidia-smi does not answer", "an answer within a minute", "reboot the host"),
            marks=pytest.mark.long,  # it is given that minute
        ),
    ],
)
def test_a_host_that_cannot_is_refused_by_finding_expectation_and_remedy(
    host: str, inventory: str, recorded: str, found: str, expected: str, remedy: str
) -> None:
    become(host, recorded)
    run = pyinfra(inventory, "preflight.py", "--json")
    assert run.returncode == 1, told(run)
    document = json.loads(run.stdout)
    assert document["ok"] is False
    [first, *_] = [one for one in document["hosts"][host]["findings"] if one["level"] == "refusal"]
    assert first["found"].startswith(found)
    assert first["expected"] == expected
    assert remedy in first["remedy"]


def test_the_text_names_every_gpu(host: str, inventory: str) -> None:
    become(host, "rtx_pro_6000_x8")
    run = pyinfra(inventory, "preflight.py")
    assert run.returncode == 0, told(run)
    assert run.stdout.count("NVIDIA RTX PRO 6000 Blackwell Server Edition  97887 MiB") == 8
