"""What the driver says of the GPUs of this machine."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from roles.preflight.hardware import Hardware
from roles.preflight.parse import GPU_QUERY, gpu
from roles.serve.parallelism import Parallelism


def hardware() -> Hardware:
    """What would be declared for this machine; all its GPUs are taken to be like the first."""
    found = [one for line in _query(f"--query-gpu={','.join(GPU_QUERY)}") if (one := gpu(line))]
    if not found:
        return Hardware(gpus=0)
    first = found[0]
    return Hardware(
        gpus=len(found), gpu=first.name, memory_mib=first.memory_mib, compute_capability=first.compute_capability
    )


def processors(parallelism: Parallelism) -> Hardware:
    """What an estimate takes the CPUs for: a GPU for each rank, with an equal part of the main memory."""
    total = re.search(r"MemTotal: +(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"))
    assert total
    return Hardware(gpus=parallelism.gpus, memory_mib=int(total[1]) // 1024 // parallelism.gpus)


def used_mib() -> int:
    """Memory in use, of the GPU that has most in use."""
    return max((int(line) for line in _query("--query-gpu=memory.used") if line.isdigit()), default=0)


def processes() -> set[int]:
    """Process ids that hold memory of a GPU."""
    return {int(line) for line in _query("--query-compute-apps=pid") if line.isdigit()}


def _query(*what: str) -> Sequence[str]:
    command = ["nvidia-smi", *what, "--format=csv,noheader,nounits"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout.splitlines()
    except FileNotFoundError:
        return ()
