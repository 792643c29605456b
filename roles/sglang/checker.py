"""Check a release from inside: run by its own Python, before it is put in place.

    bin/python checker.py LOCK

Every version is the lock's, and what a server imports first can be imported.
"""

import ctypes
import gc
import importlib
import os
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import Requirement

MODULES = (
    "torch",
    "triton",
    "flashinfer",
    "sglang.cli.main",
    "sglang.srt.entrypoints.http_server",
    "sglang.srt.models.registry",
    "sglang.benchmark.serving",
)
NEEDS_DRIVER = ("sgl_kernel",)
"""Modules that cannot be imported on a host without NVIDIA's driver."""


def locked(lines: Iterable[str]) -> dict[str, str]:
    """Name and version of each package that a lock wants on this Python and machine."""
    requirements = [Requirement(line.rstrip(" \\\n")) for line in lines if line[:1].isalnum()]
    return {
        wanted.name: next(iter(wanted.specifier)).version
        for wanted in requirements
        if wanted.marker is None or wanted.marker.evaluate()
    }


def differences(wanted: dict[str, str]) -> list[str]:
    """A sentence for each package that is not installed as wanted."""
    installed = {name: _installed(name) for name in wanted}
    return [
        f"{name} is {installed[name] or 'not installed'}, but {wanted[name]} in the lock"
        for name in wanted
        if installed[name] != wanted[name]
    ]


def failures(modules: Iterable[str]) -> list[str]:
    """A sentence for each module that cannot be imported."""
    found = []
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # whatever it is, the server would meet it, too
            found.append(f"{module} cannot be imported: {error}")
    return found


def has_driver() -> bool:
    """Whether the host has NVIDIA's driver."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def main(lock: Path) -> None:
    gc.disable()  # it would look through all that is imported again and again, and find nothing
    with lock.open() as lines:
        problems = differences(locked(lines))
    problems += failures((*MODULES, *NEEDS_DRIVER) if has_driver() else MODULES)
    sys.stderr.write("".join(f"{problem}\n" for problem in problems))
    sys.stdout.flush()
    os._exit(bool(problems))  # to take apart all that was imported would take seconds


if __name__ == "__main__":
    main(Path(sys.argv[1]))
