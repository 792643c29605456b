"""Where the lab keeps its things: everything lies under `.lab/` of the checkout."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).resolve().parents[2]
LAB: Final = CHECKOUT / ".lab"

LOCK: Final = LAB / "lock"
"""Held by whoever builds, boots or removes."""

BASE: Final = LAB / "base"
"""The pristine system that every host starts as a copy of: `root/`, and `digest` of what it was made from."""

UV_CACHE: Final = LAB / "uv-cache"
"""What uv has downloaded in hosts that are gone; a new host starts with it."""

TRASH: Final = LAB / "trash"
"""Disks of hosts that are gone, until they are removed: a release has so many files that this takes minutes."""

KEY: Final = LAB / "key"
"""SSH key of the user `deploy` in every host."""

KNOWN_HOSTS: Final = LAB / "known_hosts"


class LabError(Exception):
    """The lab cannot do what was asked; one sentence says why."""


@dataclass(frozen=True)
class Place:
    """Folder and port of one host: `lab` listens on 2222, `lab2` on 2223, and so on up to `lab9`."""

    name: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"lab[2-9]?", self.name):
            raise LabError(f"no host can be named {self.name}: a lab host is lab, lab2, … or lab9")

    @property
    def port(self) -> int:
        return 2221 + int(self.name.removeprefix("lab") or 1)

    @property
    def folder(self) -> Path:
        return LAB / "hosts" / self.name

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def keeper(self) -> Path:
        """Locked while the host runs; holds the id of the process whose end is the host's end."""
        return self.folder / "keeper"

    @property
    def console(self) -> Path:
        return self.folder / "console.log"


def existing() -> list[str]:
    """Names of the hosts that have been made."""
    return sorted(folder.name for folder in (LAB / "hosts").glob("lab*"))
