"""Which files of an index a lock means: uv asks the index, the standard's own library chooses."""

import os
import subprocess
import tempfile
import tomllib
from pathlib import Path
from typing import Final

from packaging.pylock import PackageSdist, PackageWheel, Pylock

from roles.bundle.downloads import Download
from roles.bundle.pythons import environment, tags
from roles.refusal import Refusal
from roles.sglang.release import MACHINE

_UV: Final = os.environ.get("UV", "uv")


def files_of(lock: str, python: str) -> list[Download]:
    """What a lock with hashes installs for a version of Python on a host. Raises Refusal."""
    with tempfile.TemporaryDirectory() as folder:
        given, resolved = Path(folder, "lock.txt"), Path(folder, "pylock.toml")
        given.write_text(lock, encoding="utf-8")
        command = [_UV, "pip", "compile", "--quiet", "--no-deps", "--generate-hashes", "--format", "pylock.toml"]
        command += ["--python-version", python, "--python-platform", f"{MACHINE}-manylinux_2_36"]
        done = subprocess.run(
            [*command, "--output-file", resolved, given], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Refusal(f"the index does not have what the lock names: {done.stderr.strip()}")
        described = Pylock.from_dict(tomllib.loads(resolved.read_text(encoding="utf-8")))
    selected = described.select(environment=environment(python), tags=tags(python))
    return [_download(file) for _, file in selected]


def _download(file: object) -> Download:
    assert isinstance(file, PackageWheel | PackageSdist)
    if file.url is None or file.size is None:
        raise Refusal(f"{file.url or file.path}: an index that tells address and size of its files is needed")
    return Download(file.url, file.size, file.hashes["sha256"])
