"""What serve reads from a host, in one round trip."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyinfra.api.host import Host

from roles.files import Seen, files_program, files_seen
from roles.observation import observe
from roles.serve.good import GOOD_HISTORY, Acceptance, acceptances
from roles.serve.unit import UNITS, UnitState

# One line a unit: name, enablement, state, whether its file changed since systemd read it, the running fingerprint.
_UNITS_PROGRAM: Final = f"""
for unit in $(cd {UNITS} && ls -d sglang-*.service); do
    eval "$(systemctl show --property=UnitFileState,ActiveState,NeedDaemonReload,MainPID "$unit")"
    fingerprint=$(tr '\\0' '\\n' < "/proc/$MainPID/environ" | sed -n 's/^SLIPWAY_FINGERPRINT=//p')
    echo "$unit ${{UnitFileState:-none}} $ActiveState $NeedDaemonReload ${{fingerprint:-none}}"
done"""


@dataclass(frozen=True)
class ServeFacts:
    """The host as serve found it."""

    files: Mapping[str, Seen]
    units: Mapping[str, UnitState]
    history: Sequence[Acceptance]
    """What was accepted here, the latest last."""


def serve_facts(host: Host, files: Iterable[str] = ()) -> ServeFacts:
    """Ask for the units, what was accepted, and the given files."""
    seen = observe(
        host,
        {
            "files": files_program(files) if files else "true",
            "units": _UNITS_PROGRAM,
            "history": f"tail -n 100 {GOOD_HISTORY}",
        },
    )
    return ServeFacts(
        files=files_seen(seen["files"]),
        units=dict(_unit(line) for line in seen["units"]),
        history=acceptances(seen["history"]),
    )


def _unit(line: str) -> tuple[str, UnitState]:
    name, enablement, active, stale, fingerprint = line.split()
    return name, UnitState(
        enabled=enablement == "enabled",
        active=active,
        stale=stale == "yes",
        fingerprint=None if fingerprint == "none" else fingerprint,
    )
