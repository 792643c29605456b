"""`pyinfra inventory deploy.py` on a host that answers like one with eight GPUs. Its profile serves on the CPU."""

from pathlib import Path

import pytest

from tests.lab import hosts
from tests.lab.conftest import deploy, told
from tests.lab.recorded import become, boot_as
from tests.lab.recorded.conftest import HOST, changes, write_inventory


@pytest.fixture
def inventory(tmp_path: Path, mirror: dict[str, object]) -> str:
    driver = {"cuda_driver": "manage", "cuda_reboot": "allow", **mirror}
    served = {"serve_state": "stopped", "flash_attn": "off"}  # each has tests of its own
    return write_inventory(tmp_path, hardware={"gpus": 8, "pcie_width": 16}, **driver, **served)


def test_a_host_without_a_driver_is_rebooted_half_way_and_the_run_goes_on_to_its_end(inventory: str) -> None:
    become(HOST, "bare")
    boot_as(HOST, "rtx_pro_6000_x8")
    run = deploy(inventory=inventory)
    assert run.returncode == 0, told(run)
    assert "the host is back" in run.stderr
    assert "front | Remove the front" in run.stderr
    run = deploy(inventory=inventory)
    assert (run.returncode, changes(run)) == (0, [])


def test_a_deploy_ends_on_a_refusal_before_it_changes_anything(host: str, inventory: str) -> None:
    become(host, "narrow_link")
    changed = "find /etc /opt /usr /var/lib -newer /tmp/before -type f ! -path '/var/lib/systemd/*' | head"
    hosts.run(host, "touch /tmp/before")
    run = deploy(inventory=inventory)
    assert run.returncode == 1, told(run)
    assert f"host {host}: GPU 0000:61:00.0 runs on 8 PCIe lanes, expected 16: reseat the card" in run.stderr
    assert hosts.run(host, changed) == ""
