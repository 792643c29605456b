"""Run apt on a host once nobody else there does: no other run, and no upgrade that the host makes itself. Pure."""

from typing import Final

LIMIT: Final = 900
"""Seconds to wait for others; the first unattended upgrade of a fresh host takes minutes."""

INSTALL: Final = (
    f"DEBIAN_FRONTEND=noninteractive apt-get --quiet --yes --no-install-recommends -o DPkg::Lock::Timeout={LIMIT} "
    "-o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold install"
)

_LOCKS: Final = (
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/apt/lists/lock",
    "/var/cache/apt/archives/lock",
)

_OWN: Final = "/run/lock/slipway-apt"
"""Held from lists to packages, between which apt holds nothing: a run that was killed leaves its commands at work."""


def alone(commands: str) -> str:
    """A program that runs `commands` when apt is free, or fails with a sentence that names who holds it."""
    names = " -o ".join(f"-lname {path}" for path in _LOCKS)
    # A process in a container has a file of the same name; -ef tells it by its inode.
    return f"""
holder() {{
    find /proc/[0-9]*/fd {names} 2>/dev/null | while read -r fd; do
        if [ "$fd" -ef "$(readlink "$fd")" ]; then echo "$fd" | cut -d / -f 3; break; fi
    done
}}
exec 9>>{_OWN}
waited=0
until flock --nonblock 9 && pid=$(holder) && [ -z "$pid" ]; do
    if [ $((waited += 1)) -gt {LIMIT} ]; then
        who=${{pid:+"process $pid ($(tr '\\0' ' ' <"/proc/$pid/cmdline" | sed 's/ $//'))"}}
        echo "apt is still used by ${{who:-an earlier run}} after {LIMIT} s: let it end, or end it, and run again" >&2
        exit 1
    fi
    sleep 1
done
{{
{commands}
}} 9>&-"""
