"""Where the controller keeps what was measured, and how it is read back."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeVar

from roles.refusal import Refusal

RESULTS: Final = Path("results")
"""On the controller: every record and sweep, by host."""

Kept = TypeVar("Kept")


def folder(host: str) -> str:
    """The name of a host's folder in `results/`."""
    return host.replace("/", "_")


def write_whole(path: Path, text: str) -> None:
    """Write a file by a rename, so that nobody ever meets half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def readable(paths: Iterable[Path], read: Callable[[str, str], Kept]) -> tuple[list[Kept], list[str]]:
    """What `read` makes of each file, in the order of their names, and why the others cannot be read."""
    kept, unreadable = [], []
    for path in sorted(paths):
        try:
            kept.append(read(path.read_text(encoding="utf-8"), str(path)))
        except Refusal as refusal:
            unreadable.append(str(refusal))
        except (OSError, UnicodeDecodeError) as error:
            unreadable.append(f"{path}: {error}")
    return kept, unreadable
