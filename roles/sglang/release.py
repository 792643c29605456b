"""A release: an immutable virtual environment, named after the lock that it is made from. Pure."""

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple, Self

from roles import paths
from roles.refusal import Refusal

_LOCKS: Final = Path(__file__).parent / "locks"

PYTHONS: Final = ("3.11", "3.12")
"""Versions of Python that the locks are made for: SGLang 0.5.23 needs 3.11 (its metadata), uv resolved up to 3.12."""

MACHINE: Final = "x86_64"
"""What the locks are made for, as `uname -m` says it."""

BYTES_NEEDED: Final = 14 * 2**30
"""Free disk for one release: 11 GiB measured for 0.5.23 with its bytecode, and room for what is being unpacked."""


@dataclass(frozen=True)
class Release:
    """One release of SGLang on a host."""

    version: str
    lock: str
    """The text of the lock: what is installed, with hashes."""

    @classmethod
    def of(cls, version: str) -> Self:
        """The release that the lock of a version describes."""
        return cls(version, (_LOCKS / f"{version}.txt").read_text())

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.lock.encode()).hexdigest()

    @property
    def name(self) -> str:
        """`<version>-<first 12 hex digits of the lock's sha256>`: another lock is another release."""
        return f"{self.version}-{self.sha256[:12]}"

    @property
    def directory(self) -> str:
        return f"{paths.RELEASES}/{self.name}"

    @property
    def python(self) -> str:
        return f"{self.directory}/bin/python"

    @property
    def aside(self) -> str:
        """Where it is built, on the same filesystem, so that one rename puts it in place."""
        return f"{paths.RELEASES}/.building-{self.name}"


class Uv(NamedTuple):
    """The installer, at the version of its lock."""

    lock: str

    @classmethod
    def locked(cls) -> Self:
        return cls((_LOCKS / "uv.txt").read_text())

    @property
    def version(self) -> str:
        found = re.search(r"^uv==(\S+)", self.lock, re.MULTILINE)
        assert found
        return found[1]

    @property
    def directory(self) -> str:
        return f"{paths.PROGRAMS}/uv-{self.version}"


def locked_versions() -> list[str]:
    """The versions of SGLang that there is a lock of."""
    return sorted(file.stem for file in _LOCKS.glob("[0-9]*.txt"))


def minor(python: str) -> str:
    """`3.11.2` -> `3.11`: what wheels and locks are made for."""
    return ".".join(python.split(".")[:2])


def check_host(host: str, version: str, *, machine: str, python: str | None, free: int, copied: int = 0) -> None:
    """Raise Refusal if a host cannot take a release; its `python` is None where there is none yet.

    `free` is in bytes, on the filesystem of the releases, where `copied` bytes of a bundle come first.
    """
    if machine != MACHINE:
        raise Refusal(f"host {host}: it is a {machine} machine; SGLang {version} is locked for {MACHINE}")
    if python is not None and minor(python) not in PYTHONS:
        raise Refusal(
            f"host {host}: python3 is {python}; SGLang {version} is locked for Python {' and '.join(PYTHONS)}, "
            "as Debian 12 and Ubuntu 24.04 have them"
        )
    if free < BYTES_NEEDED + copied:
        bundle = f" and {copied / 2**30:.1f} GiB for what is copied from the bundle" if copied else ""
        raise Refusal(
            f"host {host}: {free / 2**30:.1f} GiB are free for {paths.RELEASES}; "
            f"a release of SGLang {version} needs {BYTES_NEEDED / 2**30:.0f} GiB{bundle}"
        )
