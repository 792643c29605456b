"""The toolkit of the role cuda, on a lab host with recorded GPUs: the compiler is real, and compiles for them."""

from pathlib import Path

import pytest

from roles.cuda.toolkit import PROOF
from tests.lab import hosts
from tests.lab.conftest import told
from tests.lab.recorded import become
from tests.lab.recorded.conftest import HOST, RELEASE, changes, run_cuda, write_inventory


@pytest.fixture
def inventory(tmp_path: Path, mirror: dict[str, object]) -> str:
    """A host that answers like one with eight GPUs, and a repository in place of NVIDIA's."""
    become(HOST, "rtx_pro_6000_x8")
    return write_inventory(tmp_path, hardware={"gpus": 8}, **mirror)


def driver_packages() -> list[str]:
    return hosts.run(HOST, "dpkg-query -W 'nvidia-*' 2>/dev/null; true").split()


def test_the_toolkit_of_the_release_is_put_right_and_compiles_for_the_gpus(inventory: str) -> None:
    hosts.run(HOST, f"rm -f {PROOF} {RELEASE.directory}/cuda/lib64")
    run = run_cuda(inventory)
    assert run.returncode == 0, told(run)
    assert changes(run) == [
        "cuda | Complete the toolkit of the release",
        "cuda | Prove that the toolkit compiles for the GPUs",
    ]
    assert hosts.run(HOST, f"cat {PROOF}").endswith(" for 12.0\n")
    assert changes(run_cuda(inventory)) == []


def test_the_toolkit_comes_from_apt_signed_and_without_a_driver(inventory: str) -> None:
    run = run_cuda(inventory, cuda_toolkit="apt")
    assert run.returncode == 0, told(run)
    assert "/usr/local/cuda-13.0" in hosts.run(HOST, f"cat {PROOF}")
    assert driver_packages() == []
    run = run_cuda(inventory, cuda_toolkit="apt")
    assert (run.returncode, changes(run)) == (0, [])


def test_a_toolkit_that_would_bring_a_driver_is_refused(inventory: str) -> None:
    run = run_cuda(inventory, cuda_toolkit="apt", cuda_toolkit_version='"12.9"')
    assert run.returncode == 1
    assert "expected the toolkit alone" in run.stderr
    assert driver_packages() == []


def test_a_toolkit_that_is_there_is_checked_and_proved(inventory: str) -> None:
    run = run_cuda(inventory, cuda_toolkit="present", cuda_home=f"{RELEASE.directory}/cuda")
    assert run.returncode == 0, told(run)
    run = run_cuda(inventory, cuda_toolkit="present", cuda_home="/opt/nowhere")
    assert run.returncode == 1
    assert "there is no nvcc in /opt/nowhere/bin, expected one by `cuda_toolkit: present`" in run.stderr
