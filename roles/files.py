"""Many small files, kept as declared and compared by hash, so that what is right costs no round trip."""

import base64
import difflib
import hashlib
import re
import shlex
from collections.abc import Generator, Iterable, Mapping
from pathlib import PurePosixPath
from typing import Final, NamedTuple

import click
from pyinfra.api.command import StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host, state
from pyinfra.facts.files import FileContents

_INLINE_LIMIT: Final = 60_000
"""Bytes of content per command: as base64, under Linux's 128 KiB for one argument (MAX_ARG_STRLEN)."""

_DIGEST: Final = re.compile(r"(?P<sha256>[0-9a-f]{64}) [ *](?P<path>/.*)")
_STATUS: Final = re.compile(r"(?P<mode>[0-7]{1,4}) (?P<user>\S+) (?P<group>\S+) (?P<path>/.*)")


class Seen(NamedTuple):
    """A file as it is on the host."""

    sha256: str
    mode: str
    user: str
    group: str


class File(NamedTuple):
    """A file as it should be. `mode` is octal text such as "0644"."""

    path: str
    content: str
    mode: str = "0644"
    user: str = "root"
    group: str = "root"

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content.encode()).hexdigest()

    @property
    def as_seen(self) -> Seen:
        """What is seen of it once it is in place."""
        return Seen(self.sha256, self.mode, self.user, self.group)


def files_program(paths: Iterable[str]) -> str:
    """The observation program whose lines `files_seen` reads."""
    quoted = " ".join(shlex.quote(path) for path in paths)
    return f"sha256sum -- {quoted} </dev/null; stat -c '%a %U %G %n' -- {quoted}"


def files_seen(lines: Iterable[str]) -> dict[str, Seen]:
    """The files that exist, by path, from the lines of `files_program`."""
    digests: dict[str, str] = {}
    seen = {}
    for line in lines:
        if (digest := _DIGEST.match(line)) is not None:
            digests[digest["path"]] = digest["sha256"]
        elif (status := _STATUS.match(line)) is not None and status["path"] in digests:
            path, mode = status["path"], status["mode"].zfill(4)
            seen[path] = Seen(digests[path], mode, status["user"], status["group"])
    return seen


@operation()
def files_in_place(files: Iterable[File], seen: Mapping[str, Seen]) -> Generator[StringCommand]:
    """Write each file whose content, mode or owner differs from what was seen, each in one step.

    + files: the files as they should be
    + seen: the files as they are, from `files_seen`
    """
    different = []
    for file in files:
        if seen.get(file.path) == file.as_seen:
            host.noop(f"{file.path} is as declared")
        else:
            different.append(file)
    if state.config.DIFF:
        for file in different:  # all of them now, as a plan goes no further than the first command
            _show_difference(file)
    for file in different:
        yield from write(file)


@operation()
def files_absent(paths: Iterable[str]) -> Generator[StringCommand]:
    """Remove files that were seen but are no longer declared.

    + paths: those that exist
    """
    for path in paths:
        yield StringCommand("rm", "-f", shlex.quote(path))


def write(file: File) -> Generator[StringCommand]:
    """Commands that put `file` in place by a rename, so that a reader never meets half of it."""
    temporary = shlex.quote(str(PurePosixPath(file.path).with_name(f".{PurePosixPath(file.path).name}.new")))
    folder = f"mkdir -p {shlex.quote(str(PurePosixPath(file.path).parent))}"
    sorry = shlex.quote(f"{file.path} could not be written, and is as it was")
    otherwise = f"{{ rm -f {temporary}; echo {sorry} >&2; exit 1; }}"
    owner, path = shlex.quote(f"{file.user}:{file.group}"), shlex.quote(file.path)
    place = f"chown {owner} {temporary} && chmod {file.mode} {temporary} && mv {temporary} {path}"
    data = file.content.encode()
    for start in range(0, max(len(data), 1), _INLINE_LIMIT):
        chunk = base64.b64encode(data[start : start + _INLINE_LIMIT]).decode()
        steps = [folder, "umask 077", f"echo {chunk} | base64 -d {'>>' if start else '>'} {temporary}"]
        if start + _INLINE_LIMIT >= len(data):
            steps.append(place)
        yield StringCommand(f"{' && '.join(steps)} || {otherwise}")


def _show_difference(file: File) -> None:
    """What `--diff` promises: the lines that would change, in pyinfra's own colours."""
    current = host.get_fact(FileContents, path=file.path) or []
    wanted = file.content.splitlines()
    host.log(f"Will modify {click.style(file.path, bold=True)}" if current else f"Will create {file.path}")
    for line in difflib.unified_diff(current, wanted, "on the host", "declared", lineterm=""):
        colour = {"+": "green", "-": "red"}.get(line[0])
        host.log("  " + click.style(line, fg=colour))
