"""What is done and proved while the old server still serves, so that a switch ends before it has stopped anything."""

import shlex
from collections.abc import Iterable
from typing import Final

from pyinfra.api.host import Host

from roles.paths import CACHE, STATE
from roles.remote import run
from roles.serve.candidate import Candidate
from roles.serve.deadline import Deadline
from roles.serve.steps import SwitchError
from roles.serve.unit import UNITS

ROOM: Final = 2**20
"""Bytes: more than units, history and the record of a benchmark take."""


def check_port(host: Host, candidate: Candidate, leaving: Iterable[str]) -> None:
    """The port is held by nobody but the candidate's own unit and those that are about to be stopped.

    SGLang loads everything before it binds its port, and hangs for ever when that is taken.
    """
    program = f"""
held=$(ss --no-header --listening --tcp --numeric --processes 'sport = :{candidate.command.port}')
[ -n "$held" ] || exit 0
pids=$(echo "$held" | grep -o 'pid=[0-9]*' | cut -d = -f 2 | sort -u)
[ -n "$pids" ] || echo "- ? not to be seen from here"
for pid in $pids; do
    unit=$(grep -o '[^/]*\\.service' "/proc/$pid/cgroup" | head -n 1)
    echo "${{unit:--}} $pid $(tr '\\0' ' ' < "/proc/$pid/cmdline" | cut -c 1-80)"
done"""
    for line in run(host, program).splitlines():
        unit, pid, command = line.split(" ", 2)
        if unit not in {candidate.unit_name, *leaving}:
            where = f"process {pid} ({command.strip()})" + ("" if unit == "-" else f" of {unit}")
            raise SwitchError(
                f"port {candidate.command.port} is held by {where}; stop it, or give the profile another port"
            )


def check_room(host: Host) -> None:
    """Where a switch and a server write there is room: a failure there would come after the old server is gone."""
    program = f"""
for folder in {shlex.join([UNITS, STATE, CACHE])}; do
    {{ head --bytes={ROOM} /dev/zero > $folder/.room; }} 2> /dev/null || echo $folder
    rm -f $folder/.room
done"""
    if full := run(host, program).split():
        raise SwitchError(
            f"nothing more can be written to {', '.join(full)}: free space there (`df -h` and `df -i` show how much "
            "there is), or mount it for writing"
        )


def check_deadline(host: Host, candidate: Candidate) -> Deadline:
    """The time that the unit gives a start suffices for its disk. Returns the time that this disk needs."""
    deadline = candidate.start.deadline(_disk_rate(host, candidate))
    given = candidate.start.deadline()
    if deadline.seconds > given.seconds:
        raise SwitchError(
            f"{candidate.profile.name} may take longer to start than the {given.seconds} s that it is given, as its "
            f"disk is slow: {deadline.sentence}; set `serve_ready_limit: {deadline.seconds}`"
        )
    return deadline


def _disk_rate(host: Host, candidate: Candidate) -> float | None:
    """Bytes per second at which the disk gives the weights; None where it cannot be told, or they are too few.

    A part of the largest file is read past the page cache, for 10 s at the most.
    """
    if candidate.start.limit is not None:
        return None
    program = f"""
cd {shlex.quote(candidate.weights)} || exit 0
file=$(find -L . -name '*.safetensors' -size +64M -printf '%s %p\\n' | sort -n | tail -n 1)
[ -n "$file" ] || exit 0
LC_ALL=C timeout --signal=INT 10 dd if="${{file#* }}" of=/dev/null iflag=direct bs=16M count=64 2>&1 \
    | awk '/ copied, / {{ print $1 / $(NF - 3) }}'"""
    rate = run(host, program).strip()
    return float(rate) if rate else None


def prefetch(host: Host, candidate: Candidate) -> None:
    """Read the weights into free memory while the old server still serves, largest files first."""
    # A tenth of the memory stays free: reading more would only push out what was read before.
    program = f"""
cd {shlex.quote(candidate.weights)} || exit 0
memory() {{ awk -v name="$1:" '$1 == name {{ print $2 }}' /proc/meminfo; }}
free=$((($(memory MemAvailable) - $(memory MemTotal) / 10) * 1024))
find -L . -name '*.safetensors' -printf '%s %p\\n' | sort -rn | while read -r size file; do
    [ "$free" -gt "$size" ] || break
    free=$((free - size))
    cat "$file" > /dev/null
done"""
    host.log("reading the weights into free memory")
    run(host, program)
