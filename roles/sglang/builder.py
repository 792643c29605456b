"""Build a release on a host. This file is sent there and run by the host's own Python: standard library only.

    python3 builder.py FOLDER

FOLDER holds what this program needs: instructions.json, lock.txt, uv.txt, checker.py. It builds inside FOLDER and
renames what is whole, so it can be killed at any moment and run again. What it prints is shown as progress.
"""

import json
import os
import platform
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

MARKER = "COMPLETE"
"""Written last into a release: the lock's sha256, then a line for each of its programs and packages."""
FIND_SGLANG = "import importlib.util, sys; sys.exit(not importlib.util.find_spec('sglang'))"
"""Whether a release's Python runs and finds its packages, in milliseconds."""
CLOSED = """
for folder; do [ -x "$folder" ] || { echo "$folder"; exit; }; done
exec find "$folder" \\( ! -readable -o -type d ! -executable \\) -print -quit
"""
"""Shell program: the first of these folders, or of what is in the last of them, that its user may not read."""
MANY_CORES = 8
"""From here on uv compiles all 34,000 modules with all cores (110 s of CPU) sooner than one core the quarter of them
that a server imports (20 s)."""


def main(folder: Path) -> None:
    instructions = json.loads((folder / "instructions.json").read_text())
    if (python := ".".join(platform.python_version_tuple()[:2])) not in instructions["pythons"]:
        sys.exit(f"python3 is {python}; the lock is for {' and '.join(instructions['pythons'])}")
    release = Path(instructions["release"])
    os.umask(0o022)
    uv = install_uv(Path(instructions["uv_directory"]), folder)
    if not is_complete(release, instructions["lock_sha256"]):
        built = folder / "release"
        if not is_complete(built, instructions["lock_sha256"]):
            build(built, uv, folder, instructions)
        put_in_place(built, release)
    remove_unused(release, [Path(folder) for folder in instructions["units"]])
    shutil.rmtree(folder)
    say(f"release {release.name} is in place")


def install_uv(directory: Path, folder: Path) -> Path:
    """Install uv in a virtual environment of its own unless it runs, and return its program."""
    program = directory / "bin" / "uv"
    if succeeds(program, "--version"):
        return program
    say(f"installing {directory.name}")
    aside = folder / "uv"
    shutil.rmtree(aside, ignore_errors=True)
    run([sys.executable, "-m", "venv", aside])
    pip = [aside / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "--require-hashes", "--requirement", folder / "uv.txt"])
    shutil.rmtree(directory, ignore_errors=True)
    aside.rename(directory)
    return program


def build(built: Path, uv: Path, folder: Path, instructions: Mapping[str, Any]) -> None:
    """Make the virtual environment, check it, and mark it as complete."""
    environment = {
        **os.environ,
        "UV_CACHE_DIR": instructions["uv_cache"],
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_LINK_MODE": "hardlink",
    }
    shutil.rmtree(built, ignore_errors=True)
    run([uv, "venv", "--quiet", "--relocatable", "--python", sys.executable, built], environment)
    python = built / "bin" / "python"
    options = ["--require-hashes", "--only-binary", ":all:"]
    if len(os.sched_getaffinity(0)) >= MANY_CORES:
        options.append("--compile-bytecode")
    run([uv, "pip", "sync", "--python", python, *options, folder / "lock.txt"], environment)
    run([uv, "pip", "check", "--quiet", "--python", python], environment)
    check(python, folder, instructions)
    check_readable(built, instructions["user"])
    os.sync()  # a release that is marked as complete is one after a power failure, too
    (built / MARKER).write_text("\n".join([instructions["lock_sha256"], *contents(built)]) + "\n")


def check(python: Path, folder: Path, instructions: Mapping[str, Any]) -> None:
    """Run the checker as root, in the server's environment.

    The server cannot write bytecode into a release, and would compile it at each start: what uv has not compiled is
    compiled by importing it once as root.
    """
    say("importing what a server imports, which compiles it")
    with tempfile.TemporaryDirectory() as home:
        environment = {
            "PATH": f"{python.parent}:{os.environ['PATH']}",
            "HOME": home,
            "PYTHONWARNINGS": "ignore",
            **instructions["environment"],
        }
        command = [python, folder / "checker.py", folder / "lock.txt"]
        if subprocess.run(command, env=environment, cwd="/", check=False).returncode:
            sys.exit("the release does not work, and is not put in place")


def check_readable(built: Path, user: str) -> None:
    """What root can read, the server may not: a folder above may be closed, or the Python that is linked to."""
    folders = [*reversed(built.parents), built]
    done = subprocess.run(
        ["/bin/sh", "-c", CLOSED, "sh", *folders],
        user=user,
        group=pwd.getpwnam(user).pw_gid,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or done.stdout:
        sys.exit(f"{(done.stdout or done.stderr).strip()}: the user {user} may not read it")


def contents(release: Path) -> list[str]:
    """What a look at a release expects to find: its programs and packages."""
    found = [*release.glob("bin/*"), *release.glob("lib/python*/site-packages/*")]
    return sorted(str(path.relative_to(release)) for path in found)


def is_complete(release: Path, lock_sha256: str) -> bool:
    """Whether it was built from this lock, and everything that was at its top is still there."""
    try:
        lock, *names = (release / MARKER).read_text().splitlines()
    except (OSError, ValueError):
        return False
    works = succeeds(release / "bin" / "python", "-c", FIND_SGLANG)
    return lock == lock_sha256 and works and all((release / name).exists() for name in names)


def put_in_place(built: Path, release: Path) -> None:
    """Rename, after moving away what a damaged release has left. The old files live on in processes that use them."""
    damaged = release.with_name(f".damaged-{release.name}")
    shutil.rmtree(damaged, ignore_errors=True)
    if release.exists():
        release.rename(damaged)
    built.rename(release)
    shutil.rmtree(damaged, ignore_errors=True)


def remove_unused(release: Path, units: Sequence[Path]) -> None:
    """Remove releases that nothing refers to, but neither the last two nor this one."""
    releases = [marker.parent for marker in release.parent.glob(f"[!.]*/{MARKER}")]
    newest_first = sorted(releases, key=lambda path: (path / MARKER).stat().st_mtime, reverse=True)
    for name in unused([path.name for path in newest_first], {release.name} | in_use(release.parent, units)):
        say(f"removing release {name}, which nothing uses")
        (release.parent / name).rename(release.parent / f".unused-{name}")
    for left_over in release.parent.glob(".unused-*"):
        shutil.rmtree(left_over, ignore_errors=True)


def unused(newest_first: list[str], used: set[str]) -> list[str]:
    """The releases that may go: not used, and not one of the last two."""
    return [name for name in newest_first[2:] if name not in used]


def in_use(releases: Path, units: Sequence[Path]) -> set[str]:
    """The releases that a unit's file in one of the folders or a running process names."""
    written = [file for folder in units for file in folder.glob("sglang-*.service")]
    files = [*written, *Path("/proc").glob("[0-9]*/cmdline")]
    return {name for file in files for name in re.findall(rf"{re.escape(str(releases))}/([^/\s\0]+)", _text(file))}


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:  # a process that has ended meanwhile
        return ""


def succeeds(*command: str | Path) -> bool:
    """Whether a program is there and exits with 0."""
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def run(command: Iterable[object], environment: Mapping[str, str] | None = None) -> None:
    """Run a command that must succeed; it has said itself why it does not."""
    words = [str(word) for word in command]
    if subprocess.run(words, env=environment, check=False).returncode:
        sys.exit(f"failed: {' '.join(words)}")


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
