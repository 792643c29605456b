"""The steps of a switch, each of which proves what it did or says why it could not."""

import shlex
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from pyinfra.api.host import Host

from roles.remote import RemoteError, run
from roles.serve.candidate import Candidate
from roles.serve.good import GOOD, GOOD_HISTORY, Acceptance
from roles.serve.unit import UNITS

RELEASE_LIMIT: Final = 60
"""Seconds that a driver may take to give the memory of ended processes back."""


class SwitchError(RuntimeError):
    """A step of the switch, or its proof, failed; the text says why."""


def check_port(host: Host, candidate: Candidate, leaving: Iterable[str]) -> None:
    """The port is held by nobody but the units that are about to be stopped.

    SGLang loads everything before it binds its port, and hangs for ever when that is taken.
    """
    program = f"""
for pid in $(ss --no-header --listening --tcp --numeric --processes 'sport = :{candidate.command.port}' \\
        | grep -o 'pid=[0-9]*' | cut -d = -f 2 | sort -u); do
    unit=$(grep -o '[^/]*\\.service' "/proc/$pid/cgroup" | head -n 1)
    echo "${{unit:-no unit}} $pid $(tr '\\0' ' ' < "/proc/$pid/cmdline" | cut -c 1-80)"
done"""
    for line in run(host, program).splitlines():
        unit, pid, command = line.replace("no unit", "-", 1).split(" ", 2)
        if unit not in set(leaving):
            where = f"process {pid} ({command.strip()})" + ("" if unit == "-" else f" of {unit}")
            raise SwitchError(
                f"port {candidate.command.port} is held by {where}; stop it, or give the profile another port: "
                "nothing was changed"
            )


def prefetch(host: Host, candidate: Candidate) -> None:
    """Read the weights into free memory while the old server still serves, largest files first."""
    # A tenth of the memory stays free: reading more would only push out what was read before.
    program = f"""
cd {shlex.quote(candidate.weights)} || exit 0
memory() {{ awk -v name="$1:" '$1 == name {{ print $2 }}' /proc/meminfo; }}
free=$((($(memory MemAvailable) - $(memory MemTotal) / 10) * 1024))
find . -name '*.safetensors' -printf '%s %p\\n' | sort -rn | while read -r size file; do
    [ "$free" -gt "$size" ] || break
    free=$((free - size))
    cat "$file" > /dev/null
done"""
    host.log("reading the weights into free memory")
    run(host, program)


def stop(host: Host, units: Sequence[str]) -> None:
    """Stop units: running requests are finished first, then the whole control group ends."""
    if units:
        host.log(f"stopping {', '.join(units)}")
        run(host, f"systemctl stop {shlex.join(units)}")


def check_released(host: Host, candidate: Candidate, units: Sequence[str]) -> None:
    """The stopped units' processes are gone, the GPUs' memory is back, the port is free."""
    gpus = "" if candidate.profile.gpus == "all" else "--id=" + ",".join(map(str, candidate.profile.gpus))
    query = f"nvidia-smi {gpus} --query-compute-apps=pid,process_name,used_memory --format=csv,noheader"
    program = f"""
left() {{
    for unit in {shlex.join(units)}; do
        find /sys/fs/cgroup -path "*/$unit/cgroup.procs" -exec cat {{}} + 2>/dev/null \\
            | sed "s/^/process of $unit: /"
    done
    [ -e /dev/nvidiactl ] && {query} | sed 's/^/on a GPU: /'
    ss --no-header --listening --tcp --numeric 'sport = :{candidate.command.port}' | sed 's/^/on the port: /'
}}
for second in $(seq {RELEASE_LIMIT * 5}); do
    [ -z "$(left)" ] && exit 0
    sleep 0.2
done
left
exit 1"""
    try:
        run(host, program)
    except RemoteError as left:
        raise SwitchError(
            f"{RELEASE_LIMIT} s after the stop there is left, so that {candidate.profile.name} cannot start:\n{left}"
        ) from None


def accept(host: Host, candidates: Sequence[Candidate], others: Sequence[str]) -> None:
    """Record the candidates as good and start them, and nothing else, at boot."""
    acceptance = Acceptance(
        at=datetime.now(UTC), profiles={c.profile.name: c.command.fingerprint for c in candidates}
    )
    units = [candidate.unit_name for candidate in candidates]
    disable = f"systemctl disable --quiet {shlex.join(others)} &&" if others else ""
    run(
        host,
        f"""
install -d {GOOD} && cd {UNITS} && cp --preserve=mode {shlex.join(units)} {GOOD} &&
{disable} systemctl enable --quiet {shlex.join(units)} &&
echo {shlex.quote(acceptance.line())} >> {GOOD_HISTORY} && sync {GOOD_HISTORY}""",
    )


def put_back(host: Host, units: Sequence[str]) -> None:
    """The unit files of these units as they were when they were accepted."""
    names = shlex.join(units)
    run(host, f"cd {GOOD} && cp --preserve=mode {names} {UNITS} && systemctl daemon-reload")


def start(host: Host, candidate: Candidate) -> None:
    """Start the candidate's unit as declared, and wait until it answers."""
    run(host, "systemctl daemon-reload")
    start_unit(host, candidate.unit_name)


def start_unit(host: Host, unit: str) -> None:
    """Start a unit and wait until its server answers. Raises SwitchError with the reason why it never will."""
    host.log(f"starting {unit}")
    run(host, f"systemctl reset-failed {unit} 2>/dev/null; systemctl start {unit}")


def smoke(host: Host, candidate: Candidate) -> None:
    """The answers are real."""
