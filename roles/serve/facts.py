"""What serve reads from a host, in one round trip."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pyinfra.api.host import Host

from roles.files import Seen, files_program, files_seen
from roles.observation import observe
from roles.paths import CREDENTIALS
from roles.serve.good import GOOD_HISTORY, Acceptance, acceptances
from roles.serve.keys import KEYS
from roles.serve.unit import TRIED, UNITS, UnitState

# One line a unit: name, enablement, state, whether its file changed since systemd read it, the running fingerprint,
# whether its own copies of the keys are the host's.
_UNITS_PROGRAM: Final = f"""
same() {{ if [ -e "$1" ] || [ -e "$2" ]; then cmp -s "$1" "$2"; fi; }}
for unit in $(cd {UNITS} && ls -d sglang-*.service {TRIED}/sglang-*.service | sed 's:.*/::' | sort -u); do
    eval "$(systemctl show --property=UnitFileState,ActiveState,NeedDaemonReload,MainPID "$unit")"
    fingerprint=$(tr '\\0' '\\n' < "/proc/$MainPID/environ" | sed -n 's/^SLIPWAY_FINGERPRINT=//p')
    keys=current
    for key in {" ".join(KEYS)}; do same "/run/credentials/$unit/$key" "{CREDENTIALS}/$key" || keys=old; done
    echo "$unit ${{UnitFileState:-none}} $ActiveState $NeedDaemonReload ${{fingerprint:-none}} $keys"
done"""


class ServeFacts(NamedTuple):
    """The host as serve found it."""

    files: Mapping[str, Seen]
    units: Mapping[str, UnitState]
    history: Sequence[Acceptance]
    """What was accepted here, the latest last."""
    credentials: Sequence[str] = ()
    """The names of those that are here."""


def serve_facts(host: Host, files: Iterable[str] = ()) -> ServeFacts:
    """Ask for the units, what was accepted, and the given files."""
    seen = observe(
        host,
        {
            "files": files_program(files) if files else "true",
            "units": _UNITS_PROGRAM,
            "history": f"tail -n 100 {GOOD_HISTORY}",
            "credentials": f"ls -1 {CREDENTIALS}",
        },
    )
    return ServeFacts(
        files=files_seen(seen["files"]),
        units=dict(_unit(line) for line in seen["units"]),
        history=acceptances(seen["history"]),
        credentials=seen["credentials"],
    )


def _unit(line: str) -> tuple[str, UnitState]:
    name, enablement, active, stale, fingerprint, keys = line.split()
    return name, UnitState(
        enabled=enablement == "enabled",
        active=active,
        stale=stale == "yes",
        fingerprint=None if fingerprint == "none" else fingerprint,
        keys_current=keys == "current",
    )
