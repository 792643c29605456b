"""The programs of serve that run on a host: files of this folder that need Python's standard library alone."""

from pathlib import Path
from typing import Final

from roles.files import File
from roles.paths import PROGRAMS

_FOLDER: Final = f"{PROGRAMS}/host"
"""On the host the files stand as here, so that they can import each other."""

_ROOT: Final = Path(__file__).parents[2]


def _program(name: str) -> File:
    path = f"roles/serve/{name}"
    return File(f"{_FOLDER}/{path}", (_ROOT / path).read_text())


READY: Final = _program("ready.py")
SMOKE: Final = _program("smoke.py")
LAUNCH: Final = _program("launch.py")
FILES: Final = (READY, SMOKE, LAUNCH, _program("start.py"), _program("progress.py"))

START: Final = f"cd {_FOLDER} && python3 -m roles.serve.start"
"""Followed by a unit and the seconds that its start may take."""
