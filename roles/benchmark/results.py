"""Where the controller keeps what was measured. Pure."""

from pathlib import Path
from typing import Final

RESULTS: Final = Path("results")
"""On the controller: every record and sweep, by host."""


def folder(host: str) -> str:
    """The name of a host's folder in `results/`."""
    return host.replace("/", "_")
