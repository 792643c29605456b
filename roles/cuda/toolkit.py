"""The CUDA toolkit: where it is, what completes it, and how it is proved. Pure; the programs are for a shell."""

import shlex
from typing import Final

from roles.cuda.settings import CudaSettings
from roles.cuda.versions import MINIMUM_DRIVER, at_least, major
from roles.paths import STATE

PROOF: Final = f"{STATE}/cuda-proof"
"""Holds the identity of the toolkit that was proved last."""

REFERENCE_CAPABILITY: Final = "12.0"
"""What a host without GPUs compiles for."""


def home(settings: CudaSettings, release: str) -> str:
    """CUDA_HOME on the host; with `pypi` the toolkit is a part of the release at path `release`."""
    match settings.toolkit:
        case "pypi":
            return f"{release}/cuda"
        case "apt":
            return f"/usr/local/cuda-{'.'.join(settings.toolkit_version.split('.')[:2])}"
        case "present":
            return settings.home


def apt_package(version: str) -> str:
    """The toolkit alone, as NVIDIA's repository calls it: `cuda-toolkit-13-0=13.0.3-*`."""
    name = "cuda-toolkit-" + "-".join(version.split(".")[:2])
    return f"{name}={version}-*" if version.count(".") == 2 else name


def complete(release: str, version: str) -> str:
    """A program that makes the toolkit of a release's Python packages usable as CUDA_HOME, at `release`/cuda.

    The packages have no lib64, no unversioned library names and no stub of libcuda, all of which the build
    commands of torch, SGLang and FlashInfer link against. What is right already is left alone.
    """
    return f"""
set -eu
release={shlex.quote(release)}
toolkit=$(echo "$release"/lib/python3*/site-packages/nvidia/cu{major(version)})
[ -x "$toolkit/bin/nvcc" ] || {{ echo "no nvcc in $toolkit, expected one from the release's lock" >&2; exit 1; }}
[ -e "$toolkit/lib64" ] || ln -s lib "$toolkit/lib64"
for library in "$toolkit"/lib/lib*.so.*; do
    name=${{library%%.so.*}}.so
    [ -e "$name" ] || ln -sf "${{library##*/}}" "$name"
done
mkdir -p "$toolkit/lib/stubs"
if [ ! -e "$toolkit/lib/stubs/libcuda.so" ]; then
    c++ -shared -x c++ /dev/null -Wl,-soname,libcuda.so.1 -o "$toolkit/lib/stubs/.libcuda.so"
    mv "$toolkit/lib/stubs/.libcuda.so" "$toolkit/lib/stubs/libcuda.so"
fi
ln -sfn "${{toolkit#"$release"/}}" "$release/cuda"
"""


def look(home: str, release: str) -> str:
    """A program that prints, as name=value, the versions, whether the toolkit is whole, and its identity."""
    return f"""
home={shlex.quote(home)} torch=$(echo {shlex.quote(release)}/lib/python3*/site-packages/torch)
echo "nvcc=$("$home/bin/nvcc" --version | sed -n 's/.*release \\([0-9.]*\\),.*/\\1/p')"
echo "torch=$(sed -n "s/^cuda.*= '\\([0-9.]*\\)'$/\\1/p" "$torch/version.py")"
[ -e "$home/lib64/libcudart.so" ] && [ -e "$home/lib64/stubs/libcuda.so" ] && echo whole=yes
echo "identity=$home" $(cd "$home" && stat -L -c '%s %Y' bin/nvcc bin/ptxas lib64/libcudart.so)
echo "proved=$(cat {PROOF})"
"""


def prove(home: str, release: str, capability: str, proof: str) -> str:
    """A program that compiles for a compute capability, looks into the binary, and writes `proof` down."""
    architecture = f"sm_{capability.replace('.', '')}"
    return f"""
set -eu
home={shlex.quote(home)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo '__global__ void twice(float *x) {{ x[threadIdx.x] *= 2; }}' >"$work/proof.cu"
CUDA_HOME=$home "$home/bin/nvcc" -std=c++17 -arch={architecture} -shared -Xcompiler -fPIC --cudart=none \\
    "$work/proof.cu" -o "$work/proof.so" -L"$home/lib64" -L"$home/lib64/stubs" -lcudart -lcuda
{find_cuobjdump(home, release)}
"$cuobjdump" --list-elf "$work/proof.so" | grep -F {architecture}. || {{
    echo "$home/bin/nvcc made no code for {architecture}, expected some: check the toolkit's version" >&2
    exit 1
}}
echo {shlex.quote(proof)} >{PROOF}.new
mv {PROOF}.new {PROOF}
"""


def find_cuobjdump(home: str, release: str) -> str:
    """Shell lines that set `cuobjdump`: the toolkit's, or the one that Triton brings, as PyPI's nvcc has none."""
    triton = f"{shlex.quote(release)}/lib/python3*/site-packages/triton/backends/nvidia/bin/cuobjdump"
    return f"""\
for cuobjdump in {shlex.quote(home)}/bin/cuobjdump {triton}; do
    [ ! -x "$cuobjdump" ] || break
done"""


def disagreement(nvcc: str, torch: str, driver: str | None) -> str | None:
    """The sentence that refuses versions of different CUDA majors, or None. `driver` None: the host needs none.

    A driver runs its own CUDA major and all before it (NVIDIA, CUDA compatibility).
    """
    wanted = major(torch)
    fits = driver is None or (driver != "" and at_least(driver, MINIMUM_DRIVER.get(wanted, "")))
    if torch and nvcc and major(nvcc) == wanted and fits:
        return None
    drivers = "" if driver is None else f", driver {driver or 'none'}"
    return (
        f"nvcc is of CUDA {nvcc or 'none'}, the release's torch of CUDA {torch or 'none'}{drivers}, expected one "
        "major version: set `cuda_toolkit_version` to torch's"
        + ("." if driver is None else f" and have a driver of {MINIMUM_DRIVER.get(wanted, 'that CUDA')} or newer.")
    )
