"""What benchmark reads from a host."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pyinfra.api.host import Host

from roles.benchmark.name import Name
from roles.observation import observe
from roles.paths import RECORDS
from roles.remote import run


class BenchmarkFacts(NamedTuple):
    """What has been proven on a host, and what it was proven on."""

    names: Sequence[Name]
    """Of all records, the oldest first."""
    gpus: tuple[str, ...]
    """Name and driver of each, as nvidia-smi prints them: `NVIDIA H200, 580.82.07`."""

    @property
    def machine(self) -> str:
        return "; ".join(self.gpus)

    def family(self, profile: str) -> str:
        """Records of a profile can be compared as long as it runs on GPUs of the same kind and number."""
        kinds = sorted({gpu.partition(",")[0] for gpu in self.gpus})
        return f"{profile} on {len(self.gpus)} x {' and '.join(kinds)}" if kinds else f"{profile} on the CPU"


def benchmark_facts(host: Host) -> BenchmarkFacts:
    """Ask for the records' names and the GPUs."""
    seen = observe(
        host,
        {
            "records": f"ls -1 {RECORDS}",
            "gpus": "nvidia-smi --query-gpu=name,driver_version --format=csv,noheader",
        },
    )
    names = sorted(name for line in seen["records"] if (name := Name.parsed(line)) is not None)
    return BenchmarkFacts(names, tuple(line.strip() for line in seen["gpus"]))


@dataclass(frozen=True)
class Run:
    """A run of a unit, from its start to its end: two that are equal are the same one."""

    state: str
    """systemd's ActiveState."""
    began: int
    """Microseconds of the host's monotonic clock; 0 where the unit has never been started."""
    ready: int
    seen: str = field(compare=False)
    """When this was asked, in seconds of the host's clock."""

    @property
    def startup_seconds(self) -> float | None:
        """From start to ready."""
        return (self.ready - self.began) / 1e6 if self.state == "active" and self.began else None


def last_run(host: Host, unit: str) -> Run:
    """How the unit runs, or ran last."""
    names = "ActiveState,InactiveExitTimestampMonotonic,ActiveEnterTimestampMonotonic"
    now, *lines = run(host, f"date +%s.%N; systemctl show --property={names} {shlex.quote(unit)}").splitlines()
    shown = dict(line.split("=", 1) for line in lines)
    return Run(
        state=shown["ActiveState"],
        began=int(shown["InactiveExitTimestampMonotonic"]),
        ready=int(shown["ActiveEnterTimestampMonotonic"]),
        seen=now,
    )
