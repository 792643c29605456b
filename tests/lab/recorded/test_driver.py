"""The driver of the role cuda, on a lab host with recorded GPUs: apt and the reboots are real."""

from pathlib import Path

import pytest

from tests.lab import hosts
from tests.lab.conftest import told
from tests.lab.recorded import become, boot_as
from tests.lab.recorded.conftest import HOST, changes, run_cuda, write_inventory


@pytest.fixture
def inventory(tmp_path: Path, mirror: dict[str, object]) -> str:
    """The lab host, with a repository in place of NVIDIA's."""
    return write_inventory(tmp_path, hardware={"gpus": 8}, cuda_driver="manage", **mirror)


def boot() -> str:
    return hosts.run(HOST, "cat /proc/sys/kernel/random/boot_id")


def test_the_driver_is_installed_and_held_and_the_reboot_is_left_to_the_user(inventory: str) -> None:
    become(HOST, "bare")
    before = boot()
    run = run_cuda(inventory)
    assert run.returncode == 1, told(run)
    assert (
        "a reboot is needed, because driver 580.82.07 is installed, but none is loaded, "
        "expected `cuda_reboot: allow` for this run to do it: reboot the host yourself, or allow it" in run.stderr
    )
    assert boot() == before
    held = hosts.run(HOST, "apt-mark showhold").split()
    assert {"nvidia-driver-cuda", "nvidia-kernel-open-dkms", "linux-headers-amd64"} <= set(held)
    assert "nvidia-fabricmanager" not in hosts.run(HOST, "dpkg-query -W -f '${Package} ' 'nvidia-*'")
    assert "blacklist nouveau" in hosts.run(HOST, "cat /etc/modprobe.d/*.conf")


def test_a_reboot_that_is_allowed_loads_the_driver_and_the_run_goes_on(inventory: str) -> None:
    become(HOST, "bare")
    boot_as(HOST, "rtx_pro_6000_x8")
    before = boot()
    run = run_cuda(inventory, cuda_reboot="allow")
    assert run.returncode == 0, told(run)
    assert "rebooting, because driver 580.82.07 is installed, but none is loaded" in run.stderr
    assert "Traceback" not in run.stderr
    assert boot() != before
    services = "systemctl is-enabled nvidia-persistenced; systemctl is-active nvidia-persistenced"
    assert hosts.run(HOST, services).split() == ["enabled", "active"]
    settled = boot()
    run = run_cuda(inventory, cuda_reboot="allow")
    assert (run.returncode, changes(run)) == (0, [])
    assert boot() == settled


def test_boot_parameters_reboot_by_the_same_rule(tmp_path: Path, mirror: dict[str, object]) -> None:
    inventory = write_inventory(tmp_path, hardware={"gpus": 8}, cuda_boot_parameters=["iommu=pt"], **mirror)
    become(HOST, "untuned")
    run = run_cuda(inventory)
    assert run.returncode == 1, told(run)
    assert "a reboot is needed, because the kernel was booted without iommu=pt, expected" in run.stderr
    assert "iommu=pt" in hosts.run(HOST, "cat /boot/grub/grub.cfg")
    boot_as(HOST, "rtx_pro_6000_x8")
    run = run_cuda(inventory, cuda_reboot="allow")
    assert run.returncode == 0, told(run)
    assert "the host is back" in run.stderr
    assert changes(run_cuda(inventory)) == []


def test_a_reboot_that_does_not_help_is_told_and_not_repeated(inventory: str) -> None:
    become(HOST, "library_mismatch")
    boot_as(HOST, "library_mismatch")
    run = run_cuda(inventory, cuda_reboot="allow")
    assert run.returncode == 1, told(run)
    assert run.stderr.count("rebooting, because driver 580.95.05 is installed, but 580.82.07 is loaded") == 1
    assert "after a reboot driver 580.95.05 is installed, but 580.82.07 is loaded, expected the" in run.stderr


def test_secure_boot_is_refused_before_anything_is_installed(inventory: str) -> None:
    become(HOST, "secure_boot")
    run = run_cuda(inventory)
    assert run.returncode == 1, told(run)
    assert "Secure Boot is on and no NVIDIA module is loaded, expected it off or the module signed: " in run.stderr
    assert changes(run) == []
