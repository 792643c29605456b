"""Little memory for one process of a lab host, so that the kernel's own OOM killer ends it.

A lab host's systemd has no memory controller of version 1 to give to its units; root on this machine has.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

CONTROLLER: Final = Path("/sys/fs/cgroup/memory")


@contextmanager
def little_memory(name: str) -> Iterator[Path]:
    """A control group whose processes may take 4 MiB more than they have."""
    group = CONTROLLER / f"slipway-{name}"
    group.mkdir(exist_ok=True)
    try:
        (group / "memory.limit_in_bytes").write_text("4M")
        yield group
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            (CONTROLLER / "cgroup.procs").write_text(pid)
        group.rmdir()


def move(group: Path, host: str, unit: str, comm: str) -> None:
    """Put the first process of a host's unit that has this name, as the kernel knows it, into the group."""
    for processes in Path("/sys/fs/cgroup").glob(f"*/slipway-{host}/*/system.slice/{unit}/cgroup.procs"):
        for pid in processes.read_text().split():
            if Path(f"/proc/{pid}/comm").read_text().strip() == comm:
                (group / "cgroup.procs").write_text(pid)
                return
    raise LookupError(f"{unit} of {host} has no process {comm}")


def killed(group: Path) -> int:
    """How many of the group's processes the OOM killer has ended."""
    events = dict(line.split() for line in (group / "memory.oom_control").read_text().splitlines())
    return int(events["oom_kill"])
