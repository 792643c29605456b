"""The manifest of a folder of weights: what it says, and whether it is true. Also a program for the host.

    python3 manifest.py check [--hashes] FOLDER     each difference between manifest and files, a line each
    python3 manifest.py look ROOT REFERENCE…        what ROOT holds, as JSON; see `look`

It reads only, and needs nothing but the standard library.
"""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

MANIFEST = "slipway-manifest.json"
"""Names, sizes and hashes of the files; written last, so that a folder without it is not a model."""

FETCHING = ".fetching-"
"""Begins the name of a folder in which weights are being fetched."""

REPLACED = ".replaced-"
"""Begins the name of what a run that was killed has left of weights that were no model any more."""

CHUNK = 8 * 2**20

Files = Mapping[str, Mapping[str, Any]]
"""Files by name: `bytes` and `sha256` of each."""


def read(folder: Path) -> Files | None:
    """The files that the folder's manifest names; None if it has none that can be read."""
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        return {
            str(name): {"bytes": int(file["bytes"]), "sha256": str(file["sha256"])} for name, file in files.items()
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def digest(files: Files) -> str:
    """One hash for all files, their names, sizes and hashes."""
    content = sorted((name, file["bytes"], file["sha256"]) for name, file in files.items())
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def sha256(path: Path, hashed: Callable[[int], object] = lambda count: None) -> str:
    """The file's SHA-256; `hashed` is told of the bytes as they are read."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            found.update(chunk)
            hashed(len(chunk))
    return found.hexdigest()


def problems(folder: Path, *, hashes: bool = False) -> list[str]:
    """Each difference between the folder and its manifest, as a sentence."""
    files = read(folder)
    if files is None:
        return [f"{folder / MANIFEST}: not there, or no manifest"]
    found = []
    for name, file in sorted(files.items()):
        path = folder / name
        size = path.stat().st_size if path.is_file() else None
        if size is None:
            found.append(f"{path}: not there")
        elif size != file["bytes"]:
            found.append(f"{path}: has {size} bytes, not {file['bytes']}")
        elif hashes and (seen := sha256(path)) != file["sha256"]:
            found.append(f"{path}: its sha256 is {seen}, not {file['sha256']}")
    return found


def look(root: Path, references: Iterable[str]) -> dict[str, Any]:
    """`free`: bytes on the filesystem of `root`. `folders`: what Slipway has put there by path, each with its bytes
    (links are not followed), whether one of the `references` (patterns of files) or a running program names it, and
    the digest of its manifest, which is null unless every file is there with its size."""
    folders = {}
    for folder in sorted(path for path in root.glob("*/*") if path.is_dir() and not path.is_symlink()):
        unfinished = folder.name.startswith((FETCHING, REPLACED))
        files = None if unfinished else read(folder)
        if files is not None or unfinished:
            whole = files is not None and not problems(folder)
            folders[str(folder)] = {"bytes": held(folder), "digest": digest(files) if files and whole else None}
    named = text_of([*references, "/proc/[0-9]*/cmdline"])
    for path, found in folders.items():
        found["used"] = path in named
    return {"free": shutil.disk_usage(existing(root)).free, "folders": folders}


def held(folder: Path) -> int:
    """Bytes of the files below a folder, links not followed."""
    size = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(f"{directory}/{name}").st_size
            except FileNotFoundError:  # renamed meanwhile
                continue
    return size


def existing(path: Path) -> Path:
    """The nearest folder above that exists."""
    return path if path.is_dir() else existing(path.parent)


def text_of(patterns: Iterable[str]) -> str:
    """The text of all files that match."""
    text = []
    for path in (path for pattern in patterns for path in Path("/").glob(pattern.lstrip("/"))):
        if path != Path(f"/proc/{os.getpid()}/cmdline"):
            try:
                text.append(path.read_text(encoding="utf-8", errors="replace"))
            except OSError:  # a process that has ended meanwhile
                continue
    return "\n".join(text)


def main(mode: str, arguments: Sequence[str]) -> None:
    if mode == "look":
        print(json.dumps(look(Path(arguments[0]), arguments[1:])))
        return
    found = problems(Path(arguments[-1]), hashes="--hashes" in arguments)
    sys.exit("\n".join(found) if found else 0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
