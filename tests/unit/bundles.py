"""Bundles of a few bytes."""

import json
from pathlib import Path
from typing import Any

from roles.weights.manifest import MANIFEST, sha256

LOCK = "a" * 64
OLD = "wheels/both-1-py3-none-any.whl"
FILES = {OLD: "1", "wheels/c-1-cp311-cp311-manylinux_2_28_x86_64.whl": "22", "packages/Packages": "333"}


def write(folder: Path, files: dict[str, str] = FILES, lock: str = LOCK) -> Path:
    """A bundle with these files, of a lock by its SHA-256."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    described: dict[str, Any] = {"distribution": "debian 12", "pythons": ["3.11"], "locks": [lock]}
    described["files"] = {name: {"bytes": len(text), "sha256": sha256(folder / name)} for name, text in files.items()}
    (folder / MANIFEST).write_text(json.dumps(described))
    return folder
