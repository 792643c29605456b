"""What base reads from a host, in one round trip."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pyinfra.api.host import Host

from roles.base.layout import DIRECTORIES, LIMITS, SHELL, Directory
from roles.bundle.operations import APT_CONF
from roles.files import Seen, files_program, files_seen
from roles.lock import lock_program
from roles.observation import observe
from roles.paths import STATE, USER


class BaseFacts(NamedTuple):
    """The host as base found it."""

    lock: Sequence[str]
    """What `roles.lock` made of it."""
    has_apt: bool
    distribution: str
    """`debian 12`"""
    packages: frozenset[str]
    has_user: bool
    """With its home and shell."""
    directories: frozenset[Directory]
    files: Mapping[str, Seen]


def base_facts(host: Host, packages: Iterable[str]) -> BaseFacts:
    """Ask for the given packages and for all that the layout names."""
    names = " ".join(shlex.quote(name) for name in packages)
    paths = " ".join(shlex.quote(directory.path) for directory in DIRECTORIES)
    seen = observe(
        host,
        {
            "lock": lock_program(),
            "apt": "command -v apt-get",
            "distribution": '. /etc/os-release && echo "$ID $VERSION_ID"',
            "packages": f"dpkg-query --show --showformat='${{db:Status-Status}} ${{Package}}\\n' {names}",
            "user": f"getent passwd {USER}",
            "directories": f"stat --format='%a %U %G %n' -- {paths}",
            "files": files_program([LIMITS.path, APT_CONF]),
        },
    )
    return BaseFacts(
        lock=seen["lock"],
        has_apt=bool(seen["apt"]),
        distribution="".join(seen["distribution"]),
        packages=frozenset(line.split()[1] for line in seen["packages"] if line.startswith("installed ")),
        has_user=any(line.split(":")[5:] == [STATE, SHELL] for line in seen["user"]),
        directories=frozenset(_directory(line) for line in seen["directories"]),
        files=files_seen(seen["files"]),
    )


def _directory(line: str) -> Directory:
    mode, user, group, path = line.split(" ", 3)
    return Directory(path, mode.zfill(4), user, group)
