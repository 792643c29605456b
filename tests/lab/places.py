"""Where the lab keeps its things: everything lies under `.lab/` of the checkout."""

import re
from dataclasses import dataclass
from itertools import count
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

FIRST_PORT: Final = 2222


class LabError(Exception):
    """The lab cannot do what was asked; one sentence says why."""


@dataclass(frozen=True)
class Place:
    """Folder and port of one host."""

    name: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9-]*", self.name):
            raise LabError(f"no host can be named {self.name}: accepted are lower case letters, digits and -")

    @property
    def port(self) -> int:
        """Where its sshd listens: 2222 for `lab`, as the inventory says; for another what `claim_port` gave it."""
        return FIRST_PORT if self.name == "lab" else int(self._port.read_text())

    @property
    def isolated(self) -> bool:
        """Whether the host has no network but a link to this machine."""
        return self.name == "offline"

    @property
    def address(self) -> str:
        """Where this machine reaches it."""
        return "169.254.88.2" if self.isolated else "127.0.0.1"

    @property
    def gateway(self) -> str:
        """This machine, as an isolated host sees it."""
        return "169.254.88.1"

    def claim_port(self) -> None:
        """Give a host that has none the lowest port that no other one has."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.name != "lab" and not self._port.exists():
            taken = {FIRST_PORT, *(int(file.read_text()) for file in self.folder.parent.glob("*/port"))}
            self._port.write_text(str(next(port for port in count(FIRST_PORT) if port not in taken)))

    @property
    def _port(self) -> Path:
        return self.folder / "port"

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
    return sorted(folder.name for folder in (LAB / "hosts").glob("*"))
