"""The product's proof of a CUDA toolkit and its count of compile jobs, on this machine:

`python -m tests.gpu.toolkit RELEASE CUDA_HOME`, RELEASE being a folder. Writes a proof into the state folder.
"""

import os
import subprocess
import sys
from pathlib import Path

from roles import paths
from roles.cuda import toolkit
from roles.flash_attn.builder import free_memory, group_limits, workers
from tests.gpu import gpus


def main(release: str, cuda_home: str) -> int:
    hardware = gpus.hardware()
    capability = hardware.compute_capability or toolkit.REFERENCE_CAPABILITY
    Path(paths.STATE).mkdir(parents=True, exist_ok=True)
    print(_shell(toolkit.look(cuda_home, release)).stdout)
    proof = _shell(toolkit.prove(cuda_home, release, capability, "proved by tests.gpu"))
    print(proof.stdout + proof.stderr)
    limits = group_limits(Path("/proc/self/cgroup").read_text(encoding="utf-8"), Path("/sys/fs/cgroup"))
    cores, memory = os.cpu_count() or 1, free_memory()
    print(f"{cores} cores, {memory:.1f} GiB free, limits {limits}: {workers(cores, memory, limits)} compile jobs")
    return proof.returncode


def _shell(program: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["sh", "-c", program], capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
