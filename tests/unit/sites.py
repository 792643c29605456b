"""Sites on disk for the tests of the inventory."""

import shutil
import textwrap
from pathlib import Path

SHIPPED = Path(__file__).resolve().parents[2] / "group_vars"

PROFILE = "description: Serves a tiny model.\nmodel: tiny-qwen3\n"


def write(root: Path, files: dict[str, str]) -> None:
    """Write each text to its place below `root`, common indentation removed."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def slipway(root: Path) -> Path:
    """A small Slipway: a model, the profiles `small` and `large`, one host in one group."""
    files = {
        "group_vars/all.yml": "profile: small",
        "group_vars/profiles/small.yml": PROFILE,
        "group_vars/profiles/large.yml": PROFILE,
        "inventory/hosts.yml": "gpu: {hosts: {box: }}",
    }
    write(root, files)
    (root / "group_vars/models").mkdir()
    shutil.copy(SHIPPED / "models/tiny-qwen3.yml", root / "group_vars/models")
    return root
