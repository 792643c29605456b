"""Packages of this machine's distribution with all that they depend on, as a small apt repository.

apt resolves and fetches as it would for a machine that has nothing; neither root nor a change to this machine is
needed. Its own sources are used, so that its mirrors, keys and proxies are right.
"""

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from roles.bundle.bundle import INDEX
from roles.refusal import Refusal
from roles.weights import manifest

_URI: Final = re.compile(r"'\S+' (?P<name>\S+) \d+ SHA256:(?P<sha256>[0-9a-f]{64})")
"""A line of `apt-get --print-uris`."""


def collect(names: Iterable[str], folder: Path, *, pins: str = "", options: str = "") -> None:
    """Let `folder` hold the packages, all that they need, and an index. Raises Refusal.

    `pins` are apt preferences; `options` is further configuration of apt.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        (place / "status").touch()
        (place / "preferences").write_text(pins, encoding="utf-8")
        (place / "apt.conf").write_text(_configuration(place, folder) + options, encoding="utf-8")
        for empty in ("lists/partial", "cache/partial", "none/partial"):
            (place / empty).mkdir(parents=True)
        (folder / "partial").mkdir(exist_ok=True)
        install = ["install", "--yes", "--no-install-recommends"]
        _apt(place, "update", "--error-on=any")
        asked = _apt(place, *install, "--print-uris", f"--option=Dir::Cache::Archives={place}/none", *names)
        wanted = {found["name"]: found["sha256"] for found in _URI.finditer(asked)}
        for path in folder.glob("*.deb"):
            if wanted.get(path.name) != manifest.sha256(path):
                path.unlink()
        _apt(place, *install, "--download-only", *names)
    (folder / "lock").unlink(missing_ok=True)
    (folder / "partial").rmdir()
    _write_index(folder)


def python_of(folder: Path) -> str:
    """The version of the distribution's Python: `3.11`."""
    name = next(folder.glob("python3_*.deb")).name
    return ".".join(name.split("_")[1].split(".")[:2])


def _configuration(place: Path, archives: Path) -> str:
    return f"""\
APT::Architecture "amd64";
APT::Architectures "amd64";
APT::Sandbox::User "";
Acquire::ForceHash "SHA256";
Acquire::Retries "3";
Dir::Cache "{place}/cache";
Dir::Cache::Archives "{archives.absolute()}";
Dir::Etc::Preferences "{place}/preferences";
Dir::State "{place}";
Dir::State::Lists "{place}/lists";
Dir::State::Status "{place}/status";
"""


def _apt(place: Path, *arguments: str) -> str:
    environment = {**os.environ, "APT_CONFIG": f"{place}/apt.conf", "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            ["apt-get", "--quiet", *arguments], env=environment, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise Refusal("apt-get: not found; a bundle is made on a machine with the hosts' distribution") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("E:")]
        raise Refusal(f"apt-get {arguments[0]}: {'; '.join(said) or done.stderr.strip()}")
    return done.stdout


def _write_index(folder: Path) -> None:
    """`Packages`, and `Release`, which names it with its hash."""
    stanzas = []
    for path in sorted(folder.glob("*.deb")):
        control = subprocess.run(["dpkg-deb", "--field", path], capture_output=True, text=True, check=True).stdout
        size, sha256 = path.stat().st_size, manifest.sha256(path)
        stanzas.append(f"{control.strip()}\nFilename: ./{path.name}\nSize: {size}\nSHA256: {sha256}\n")
    index = "\n".join(stanzas).encode()
    (folder / INDEX).write_bytes(index)
    (folder / "Release").write_text(f"SHA256:\n {hashlib.sha256(index).hexdigest()} {len(index)} {INDEX}\n")
