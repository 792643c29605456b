"""What base changes."""

import shlex
from collections.abc import Generator, Iterable
from typing import Any, Final

from pyinfra.api.command import StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host
from pyinfra.operations import server

from roles.apt import INSTALL, alone
from roles.base.layout import SHELL, Directory
from roles.paths import STATE, USER

_LISTS: Final = "/var/lib/apt/periodic/update-success-stamp"


@operation()
def packages_installed(packages: Iterable[str], installed: frozenset[str]) -> Generator[Any]:
    """Install what is missing, from package lists at most an hour old.

    + packages: names of the distribution's packages
    + installed: those of them that the host has
    """
    missing = sorted(set(packages) - installed)
    if not missing:
        host.noop("all packages are installed")
        return
    fresh = f'[ -n "$(find {_LISTS} -mmin -60 2>/dev/null)" ]'
    update = f"{fresh} || {{ apt-get --quiet update && touch {_LISTS}; }} || exit 1"
    yield StringCommand(alone(f"{update}\n{INSTALL} {shlex.join(missing)}"))


@operation()
def user_created(exists: bool) -> Generator[Any]:
    """Create the system user that the server runs as, or put it right: no shell, no home of its own.

    + exists: whether the host has it as it should be
    """
    if exists:
        host.noop(f"user {USER} is as declared")
        return
    yield from server.user._inner(
        user=USER, system=True, home=STATE, shell=SHELL, ensure_home=False, create_home=False
    )


@operation()
def directories_created(directories: Iterable[Directory], seen: frozenset[Directory]) -> Generator[StringCommand]:
    """Create directories, and put back the owner and mode of those that differ.

    + directories: as they should be
    + seen: as they are
    """
    for directory in directories:
        if directory in seen:
            host.noop(f"{directory.path} is as declared")
            continue
        owner = f"-o {directory.user} -g {directory.group}"
        yield StringCommand(f"install -d {owner} -m {directory.mode} {shlex.quote(directory.path)}")
