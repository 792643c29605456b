"""The programs of serve that run on a host: files of this folder that need Python's standard library alone."""

from pathlib import Path
from typing import Final

from roles.files import File
from roles.paths import PROGRAMS

_FOLDER: Final = f"{PROGRAMS}/serve"


def _program(name: str) -> File:
    return File(f"{_FOLDER}/{name}", Path(__file__).with_name(name).read_text())


READY: Final = _program("ready.py")
FILES: Final = (READY,)
