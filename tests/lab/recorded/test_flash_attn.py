"""The role flash_attn, on a lab host with recorded GPUs: pip, the compiler, cuobjdump and the release are real.

Compiling all of flash-attn takes hours here. So the build is the real one but for its CUDA code, which must be
found out; and the wheel that is accepted holds one small kernel under flash-attn's names.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import hosts
from tests.lab.conftest import Run, pyinfra, told
from tests.lab.recorded import become
from tests.lab.recorded.conftest import HOST, RELEASE, changes, write_inventory

WHEEL = "/tmp/wheels/flash_attn-2.8.3.post2-cp311-cp311-linux_x86_64.whl"

MAKE_WHEEL = f"""
set -e
rm -rf /tmp/wheels && mkdir -p /tmp/wheels/flash_attn/cute && cd /tmp/wheels
cat >flash_attn_2_cuda.cu <<'END'
#include <Python.h>
__global__ void twice(float *x) {{ x[threadIdx.x] *= 2; }}
static PyModuleDef module = {{PyModuleDef_HEAD_INIT, "flash_attn_2_cuda"}};
PyMODINIT_FUNC PyInit_flash_attn_2_cuda() {{ return PyModule_Create(&module); }}
END
cuda={RELEASE.directory}/cuda
$cuda/bin/nvcc -arch=sm_ARCHITECTURE -shared -Xcompiler -fPIC --cudart=none -I/usr/include/python3.11 \\
    flash_attn_2_cuda.cu -o flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so -L$cuda/lib64 -lcudart
rm flash_attn_2_cuda.cu
echo "old = True" >flash_attn/cute/interface.py
touch flash_attn/__init__.py
about=flash_attn-2.8.3.post2.dist-info && mkdir $about
printf 'Metadata-Version: 2.1\\nName: flash-attn\\nVersion: 2.8.3.post2\\n' >$about/METADATA
printf 'Wheel-Version: 1.0\\nGenerator: lab\\nRoot-Is-Purelib: false\\nTag: cp311-cp311-linux_x86_64\\n' >$about/WHEEL
touch $about/RECORD && find * -type f | sed 's/$/,,/' >RECORD && mv RECORD $about
python3 -m zipfile -c {WHEEL} * && sha256sum {WHEEL} | cut -d ' ' -f 1
"""
"""A shell program that makes the wheel, with code for one architecture, and prints its hash."""

ASK_RELEASE = f"""{RELEASE.python} -c '
import base64, hashlib
from importlib.metadata import distribution, distributions
print(*sorted(found.name for found in distributions() if found.name.startswith("flash-attn")))
for file in distribution("flash-attn-4").files:
    if file.hash:
        digest = hashlib.sha256(file.read_binary()).digest()
        assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == file.hash.value, file
'"""
"""A shell program that prints what the release has of flash-attn; it fails if a file of flash-attn 4 is damaged."""


@pytest.fixture
def inventory(tmp_path: Path, host_with_release: str) -> Iterator[str]:
    become(HOST, "rtx_pro_6000_x8")
    inventory = write_inventory(tmp_path, hardware={"gpus": 8})
    yield inventory
    become(HOST, "none")
    run_flash_attn(inventory, flash_attn="off")
    hosts.run(HOST, "systemctl reset-failed; rm -rf /opt/slipway/wheels")  # a failed build stays to be looked at


def run_flash_attn(inventory: str, **variables: str) -> Run:
    data = [word for name, value in variables.items() for word in ("--data", f"{name}={value}")]
    return pyinfra("-y", inventory, "roles.flash_attn.tasks.flash_attn", *data)


def in_release() -> str:
    return hosts.run(HOST, ASK_RELEASE).strip()


def test_a_build_without_code_for_the_gpus_is_found_out_and_does_not_enter_the_release(inventory: str) -> None:
    run = run_flash_attn(inventory, flash_attn_environment='{"FLASH_ATTENTION_SKIP_CUDA_BUILD": "TRUE"}')
    assert run.returncode == 1, told(run)
    assert "compiling for sm_120, " in run.stderr
    assert "has no compiled code, expected code for sm_120: it is not installed; look at the build's" in run.stderr
    assert in_release() == "flash-attn-4"
    assert hosts.run(HOST, "ls /opt/slipway/wheels").strip() == ""


@pytest.fixture
def given(inventory: str) -> dict[str, str]:
    """Variables of a wheel with code for the GPUs."""
    return wheel("120")


def wheel(architecture: str) -> dict[str, str]:
    made = hosts.run(HOST, MAKE_WHEEL.replace("ARCHITECTURE", architecture)).strip()
    return {"flash_attn": "wheel", "flash_attn_wheel": WHEEL, "flash_attn_wheel_sha256": made}


def test_a_wheel_is_proved_installed_kept_and_taken_out_beside_an_untouched_flash_attn_4(
    inventory: str, given: dict[str, str]
) -> None:
    run = run_flash_attn(inventory, **given)
    assert run.returncode == 0, told(run)
    assert in_release() == "flash-attn flash-attn-4"
    assert changes(run_flash_attn(inventory, **given)) == []

    assert run_flash_attn(inventory, flash_attn="off").returncode == 0
    assert in_release() == "flash-attn-4"
    run = run_flash_attn(inventory, **given)
    assert run.returncode == 0, told(run)
    assert "using the wheel that is kept" in run.stderr


def test_a_wheel_for_other_gpus_is_refused(inventory: str) -> None:
    run = run_flash_attn(inventory, **wheel("90"))
    assert run.returncode == 1, told(run)
    assert "has code for sm_90, expected code for sm_120" in run.stderr
    assert in_release() == "flash-attn-4"
