"""Bring a model's weights to a host. It is sent there and runs with a release's Python, as a job.

    PYTHONPATH=FOLDER python -m roles.weights.fetch FOLDER

FOLDER holds `instructions.json` and is on the disk of the weights. A file comes to `FOLDER/part/`, goes to
`FOLDER/files/` when it is right, and one rename makes them all the model, with a manifest. So it can be killed at any
moment and run again: what is right is kept, the rest is fetched anew. What it prints is shown as progress.
"""

import errno
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from roles.weights import manifest
from roles.weights.completeness import incomplete
from roles.weights.progress import Progress, amount
from roles.weights.sources import Expected, Interruption, Problem, Source, agreed, source_of, unreadable

WORKERS = 4
"""Files that are fetched and hashed at once."""

PAUSES = (1, 2, 5, 15, 60, 60, 60)
"""Seconds before each further attempt; one that gets further begins again with the first."""


def main(folder: Path) -> None:
    wish = json.loads((folder / "instructions.json").read_text(encoding="utf-8"))
    os.umask(0o022)
    try:
        fetch(folder, wish)
    except Problem as problem:
        sys.exit(f"{wish['model']}: {problem}")
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        sys.exit(f"{wish['model']}: the disk of {wish['folder']} is full; a further run goes on when there is room")


def fetch(folder: Path, wish: Mapping[str, Any]) -> None:
    """All of it. Raises Problem, or OSError where the disk is full."""
    model, files = Path(wish["folder"]), folder / "files"
    source = source_of(wish, folder)
    expected = declared(source.files(), wish)
    keep_what_is_there(model, files, expected)
    check_room(source, files, expected)
    total = sum(file.bytes for file in expected.values())
    print(f"{wish['model']}: {len(expected)} files, {amount(total)}", flush=True)
    with Progress(total, lambda: present(folder)) as progress:
        hashes = gather(source, folder, expected, progress)
    if found := incomplete(files):
        raise Problem("; ".join(found))
    described = {name: {"bytes": expected[name].bytes, "sha256": hashes[name]} for name in sorted(expected)}
    origin = {name: value for name, value in wish["source"].items() if name not in ("files", "bytes") and value}
    text = json.dumps({"model": wish["model"], "source": origin, "files": described}, indent=1)
    (files / manifest.MANIFEST).write_text(text + "\n", encoding="utf-8")
    put_in_place(files, model, wish["user"])
    shutil.rmtree(folder)
    print(f"{wish['model']} is in place: {model}", flush=True)


def declared(found: Mapping[str, Expected], wish: Mapping[str, Any]) -> dict[str, Expected]:
    """The files of the source, if they are those of the model's file. Raises Problem."""
    known = {name: Expected(**file) for name, file in wish["source"]["files"].items()}
    files = agreed(found, known, f"the source, compared with {wish['file']}")
    total = sum(file.bytes for file in files.values())
    if wish["source"]["bytes"] not in (None, total):
        raise Problem(f"the source has {total} bytes; `bytes` in {wish['file']} is {wish['source']['bytes']}")
    return files


def keep_what_is_there(model: Path, files: Path, expected: Mapping[str, Expected]) -> None:
    """Let `files` hold nothing but expected names, and go on with what stands in the model's place already."""
    for name in expected:
        there, path = model / name, files / name
        if there.is_file() and not os.path.lexists(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            os.link(there, path, follow_symlinks=False)
    if files.exists():
        for path in files.rglob("*"):
            if not path.is_dir() and str(path.relative_to(files)) not in expected:
                path.unlink()


def check_room(source: Source, files: Path, expected: Mapping[str, Expected]) -> None:
    """Raise Problem if the disk has no room for what is still to come."""
    missing = {name: file for name, file in expected.items() if not (files / name).exists()}
    needed = sum(source.room(name, file) for name, file in missing.items())
    needed -= manifest.held(files.with_name("part"))
    free = shutil.disk_usage(files.parent).free
    if needed > free:
        raise Problem(
            f"{amount(needed)} are still to come, and {amount(free)} are free on the disk of {files.parent}"
        )


def present(folder: Path) -> int:
    """Bytes that have been fetched so far, the targets of links included."""
    size = manifest.held(folder / "part")
    for path in (folder / "files").rglob("*"):
        if path.is_file():
            size += path.stat().st_size
    return size


def gather(source: Source, folder: Path, expected: Mapping[str, Expected], progress: Progress) -> dict[str, str]:
    """Fetch and verify every file; the SHA-256 of each. Raises the first problem."""

    def one(name: str) -> tuple[str, str]:
        return name, gather_one(source, folder, name, expected[name], progress)

    with ThreadPoolExecutor(WORKERS) as pool:
        # The largest first, as it would keep one worker at work alone; the map begins nothing more after a problem.
        return dict(pool.map(one, sorted(expected, key=lambda name: -expected[name].bytes)))


def gather_one(source: Source, folder: Path, name: str, expected: Expected, progress: Progress) -> str:
    """The SHA-256 of one file, which is in `files` then. Raises Problem."""
    path, part = folder / "files" / name, folder / "part" / name
    if path.is_file():
        try:
            return verify(path, name, expected, progress)
        except Problem as problem:
            print(f"{problem}; it is fetched anew", flush=True)
            path.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    part.parent.mkdir(parents=True, exist_ok=True)
    seen = patiently(source, name, expected, part)
    try:
        found = verify(part, name, expected, progress, seen)
    except Problem:
        part.unlink()
        raise
    if not part.is_symlink():
        part.chmod(0o644)
    part.replace(path)
    return found


def patiently(source: Source, name: str, expected: Expected, part: Path) -> str | None:
    """Bring one file, with further attempts after interruptions; its SHA-256 if the source saw it. Raises Problem."""
    failures = 0
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            return source.bring(name, expected, part)
        except Interruption as interruption:
            further = part.exists() and part.stat().st_size > before
            failures = 1 if further else failures + 1
            if failures > len(PAUSES):
                raise
            print(f"{interruption}; another attempt follows in {PAUSES[failures - 1]} s", flush=True)
            time.sleep(PAUSES[failures - 1])


def verify(path: Path, name: str, expected: Expected, progress: Progress, seen: str | None = None) -> str:
    """The file's SHA-256: what was `seen` on its way, if known. Raises Problem if it is not what is expected."""
    if (size := path.stat().st_size) != expected.bytes:
        raise Problem(f"{name}: has {size} bytes, not {expected.bytes}")
    if seen:
        progress.verified(size)
    found = seen or manifest.sha256(path, progress.verified)
    if expected.sha256 not in (None, found):
        raise Problem(f"{name}: its sha256 is {found}, not {expected.sha256}")
    if expected.git is not None and expected.git != as_git_object(path):
        raise Problem(f"{name}: is not the file of this revision; as a git object it should be {expected.git}")
    return found


def as_git_object(path: Path) -> str:
    """The SHA-1 that git knows a file by."""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def put_in_place(files: Path, model: Path, user: str) -> None:
    """Make the files readable for the server, and the model visible, in one step. Raises Problem."""
    for path in [files, *files.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
    if hidden := unreadable(files.rglob("*"), user):
        raise Problem(f"{hidden[0]}: the user {user} may not read it; a folder above is closed to others")
    os.sync()  # a model that is in place is one after a power failure, too
    replaced = model.with_name(f"{manifest.REPLACED}{model.name}")
    shutil.rmtree(replaced, ignore_errors=True)
    if model.exists():
        model.rename(replaced)
    files.rename(model)
    shutil.rmtree(replaced, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
