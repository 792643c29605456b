"""Wheels of flash-attn: what they are made from, for which GPUs, and where they are kept. Pure."""

import shlex
from pathlib import Path
from typing import Final, NamedTuple, Self

from roles.paths import PROGRAMS

_LOCKS: Final = Path(__file__).parent / "locks"

KEPT: Final = f"{PROGRAMS}/wheels"
"""On a host: a folder for each key, with one wheel in it. Outlives releases, and may be copied to another host."""

_ARCHITECTURES: Final = {8: "80", 9: "90", 10: "100", 12: "120"}
"""Major compute capability -> the architecture that flash-attn 2.8.3 compiles for it (its setup.py)."""


def locked_versions() -> list[str]:
    """The versions of flash-attn that there is a lock of."""
    return sorted(file.stem for file in _LOCKS.glob("[0-9]*.txt"))


def lock_of(name: str) -> str:
    """The text of a lock: a version's, or that of the `tools`."""
    return (_LOCKS / f"{name}.txt").read_text()


def architecture(capability: str) -> str | None:
    """`12.0` -> `120`: flash-attn's name for it; None if it has no code for such a GPU."""
    return _ARCHITECTURES.get(int(capability.split(".")[0] or 0))


class Release(NamedTuple):
    """What a wheel must fit: the versions in a release, and the toolkit beside it."""

    python: str
    """`3.11`"""
    torch: str
    cuda: str

    @classmethod
    def read(cls, lines: list[str]) -> Self | None:
        """From the lines `python=…`, `torch=…`, `cuda=…`; None if the release is not there (yet)."""
        pairs = dict(line.split("=", 1) for line in lines if "=" in line)
        values = [pairs.get(name, "") for name in ("python", "torch", "cuda")]
        return cls(*values) if all(values) else None


def versions(release: str, cuda_home: str) -> str:
    """The shell program that prints the lines `Release.read` reads, of paths."""
    script = "import sys, importlib.metadata as m; print('python=%d.%d' % sys.version_info[:2]); "
    script += "print('torch=' + m.version('torch').split('+')[0])"
    nvcc = f"{shlex.quote(cuda_home)}/bin/nvcc --version | sed -n 's/.*release \\([0-9.]*\\),.*/cuda=\\1/p'"
    return f'{shlex.quote(f"{release}/bin/python")} -c "{script}"; {nvcc}'


def key(version: str, release: Release, architecture: str) -> str:
    """The folder of a built wheel: everything that decides whether it fits.

    `2.8.3.post2-torch2.14.1-cuda13.0-python3.11-sm120`
    """
    return f"{version}-torch{release.torch}-cuda{release.cuda}-python{release.python}-sm{architecture}"
