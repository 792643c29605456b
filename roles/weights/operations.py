"""What weights changes."""

import shlex
from collections.abc import Generator
from pathlib import PurePosixPath

from pyinfra.api.command import StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from roles.weights.layout import GENERATOR, MANIFEST


@operation()
def generated(kind: str, directory: str, python: str, complete: bool) -> Generator[StringCommand]:
    """Make a tiny model of random weights, aside, and put it in place in one step.

    + kind: which model, as the generator knows it
    + directory: where it is served from
    + python: the interpreter of a release
    + complete: whether it is there
    """
    if complete:
        host.noop(f"{directory} is complete")
        return
    aside = f"{directory}.new"
    program = shlex.quote(GENERATOR.read_text())
    steps = [
        f"rm -rf {shlex.quote(aside)} {shlex.quote(directory)}",
        f"mkdir -p {shlex.quote(str(PurePosixPath(directory).parent))}",
        f"{shlex.quote(python)} -c {program} --kind {shlex.quote(kind)} --out {shlex.quote(aside)}",
        f"touch {shlex.quote(f'{aside}/{MANIFEST}')}",
        f"mv {shlex.quote(aside)} {shlex.quote(directory)}",
    ]
    yield StringCommand(" && ".join(steps))
