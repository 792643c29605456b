"""`pyinfra inventory preflight.py` against hosts that answer as recorded."""

import json
from pathlib import Path

import pytest

from tests.lab.conftest import pyinfra
from tests.lab.recorded import become
from tests.lab.recorded.conftest import write_inventory


@pytest.fixture
def inventory(host: str, tmp_path: Path) -> str:
    return write_inventory(tmp_path, hardware={"gpus": 8, "pcie_width": 16})


@pytest.mark.parametrize(
    ("recorded", "refused"),
    [
        ("rtx_pro_6000_x8", ""),
        ("h200_x8", ""),
        ("untuned", ""),
        ("lost_gpu", "0000:a1:00.0 does not answer the driver"),
        ("narrow_link", "GPU 0000:61:00.0 runs on 8 PCIe lanes, expected 16"),
        ("garbage", "does not answer the driver"),
        ("hanging", "nvidia-smi does not answer"),
        ("bare", "no NVIDIA driver is loaded"),
    ],
)
def test_each_host_is_judged_by_exit_code_and_document(
    host: str, inventory: str, recorded: str, refused: str
) -> None:
    become(host, recorded)
    done = pyinfra(inventory, "preflight.py", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == (1 if refused else 0)
    assert document["ok"] is not bool(refused)
    refusals = [one["found"] for one in document["hosts"][host]["findings"] if one["level"] == "refusal"]
    assert bool(refusals) is bool(refused)
    assert any(refused in f"{found}, expected 16" for found in refusals) or not refused


def test_the_text_names_every_gpu(host: str, inventory: str) -> None:
    become(host, "rtx_pro_6000_x8")
    done = pyinfra(inventory, "preflight.py")
    assert done.returncode == 0
    assert done.stdout.count("NVIDIA RTX PRO 6000 Blackwell Server Edition  97887 MiB") == 8
