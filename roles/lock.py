"""One deploy at a time on a host.

The lock names the process on the host that carries the run's connection (its sshd session; for @local the run
itself). While that process lives, the run lives; when it is gone the lock is stale, whatever ended the run.
So nothing has to release it, and it cannot outlive a reboot. It also names the run, which can take it again after
it has lost its connection, even while the host has not noticed that yet.
"""

import getpass
import re
import secrets
import socket
from collections.abc import Sequence
from typing import Final

from roles.paths import RUNTIME
from roles.refusal import Refusal

_RUN: Final = secrets.token_hex(8)

_PATH: Final = f"{RUNTIME}/deploy.lock"

# A process is its number and its start time (field 22 of /proc/PID/stat, 20 after the name), as numbers are reused.
_PROGRAM: Final = f"""
started() {{ sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20; }}
parent() {{ sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 2; }}
carrier=$$
while :; do
    case "$(cat "/proc/$carrier/comm")" in
    sh | bash | dash | rbash | ksh | zsh | fish | sudo | doas | su) carrier=$(parent "$carrier") ;;
    *) break ;;
    esac
done
mkdir -p {RUNTIME}
exec 9>>{_PATH}.guard
flock 9
read -r pid start run who 2>/dev/null < {_PATH}
if [ -n "$start" ] && [ "$pid" != "$carrier" ] && [ "$run" != RUN ] && [ "$start" = "$(started "$pid")" ]; then
    echo "held $who"
else
    echo "$carrier $(started "$carrier") RUN OWNER since $(date -u '+%H:%M:%S UTC')" > {_PATH}
    echo taken
fi
"""


def lock_program(run: str = _RUN) -> str:
    """The observation program that takes the lock for this run, or says who holds it."""
    owner = re.sub(r"[^\w.@-]", "_", f"{getpass.getuser()}@{socket.gethostname()}")
    return _PROGRAM.replace("OWNER", owner).replace("RUN", run)


def check_lock(lines: Sequence[str], host: str) -> None:
    """Raise Refusal unless `lock_program` said that this run has the lock."""
    if "taken" not in lines:
        held = " ".join(lines).removeprefix("held ") or "an unknown run"
        raise Refusal(
            f"host {host}: another run is at work, of {held}; wait for its end (a lock left behind is recognised)"
        )
