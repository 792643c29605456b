"""Read everything a role needs to know about a host in one round trip."""

from collections.abc import Iterable, Mapping
from typing import Final

from pyinfra.api.exceptions import DeployError
from pyinfra.api.host import Host

from roles.remote import RemoteError, run

_MARK: Final = "::observed:: "


def observe(host: Host, programs: Mapping[str, str]) -> dict[str, list[str]]:
    """Each shell program's lines of stdout, by its name; quote what you put into the programs (shlex.quote).

    A host that cannot be asked ends the run here, before anything is changed.
    """
    try:
        return observed(run(host, all_of(programs)).split("\n"))
    except RemoteError as error:
        raise DeployError(
            f"host {host.name}: cannot be read ({' '.join(str(error).split())}); Slipway needs a connection, and "
            "root: as `ansible_user`, or by sudo without a password or with `ansible_become_password`"
        ) from None


def all_of(programs: Mapping[str, str]) -> str:
    """One command that runs them one after another. A program that fails has just said less."""
    parts = [f"echo; echo '{_MARK}{name}'; ( {program}\n) 2>/dev/null" for name, program in programs.items()]
    return "; ".join([*parts, "true"])


def observed(lines: Iterable[str]) -> dict[str, list[str]]:
    """What each of them said, from the lines of that command."""
    seen: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lines:
        if line.startswith(_MARK):
            current = seen.setdefault(line.removeprefix(_MARK), [])
        else:
            current.append(line)
    for said in seen.values():
        while said and not said[-1]:
            said.pop()
    return seen
