"""What front reads from a host, in one round trip."""

import shlex
from collections.abc import Mapping
from typing import NamedTuple

from pyinfra.api.host import Host

from roles.files import Seen, files_program, files_seen
from roles.front.layout import PACKAGES, RUNNING, SELF_SIGNED, SELF_SIGNED_KEY, UNIT
from roles.observation import observe


class FrontFacts(NamedTuple):
    """The host as front found it."""

    packages: frozenset[str]
    files: Mapping[str, Seen]
    """Those of the role, and the copies that tell what the running nginx has read."""
    has_certificate: bool
    """The self-signed one."""
    state: str
    """systemd's ActiveState; empty if there is no such unit."""
    enabled: bool


def front_facts(host: Host) -> FrontFacts:
    """Ask for all that the layout names."""
    names = shlex.join(PACKAGES)
    seen = observe(
        host,
        {
            "packages": f"dpkg-query --show --showformat='${{db:Status-Status}} ${{Package}}\\n' {names}",
            "files": files_program([*RUNNING, *RUNNING.values()]),
            "certificate": f"[ -s {SELF_SIGNED} ] && [ -s {SELF_SIGNED_KEY} ] && echo yes",
            "state": f"systemctl is-active {UNIT}",
            "enabled": f"systemctl is-enabled {UNIT}",
        },
    )
    return FrontFacts(
        packages=frozenset(line.split()[1] for line in seen["packages"] if line.startswith("installed ")),
        files=files_seen(seen["files"]),
        has_certificate=bool(seen["certificate"]),
        state="".join(seen["state"]),
        enabled=seen["enabled"] == ["enabled"],
    )
