"""The systemd unit of a profile. Pure."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from roles.serve.profile import Profile

UNITS: Final = "/etc/systemd/system"

TRIED: Final = "/run/systemd/system.control"
"""Where systemd looks first, and what a reboot forgets: a unit stands here from its start until it is accepted."""


def unit_name(profile: str) -> str:
    """The unit that serves a profile."""
    return f"sglang-{profile}.service"


class UnitState(NamedTuple):
    """A unit that has a file on the host."""

    enabled: bool
    active: str
    """systemd's ActiveState; `active` means that the server answers."""
    stale: bool
    """Its file is newer than what systemd has read."""
    fingerprint: str | None
    """That of the running process."""
    keys_current: bool = True
    """The keys that it was started with are those that are on the host now."""

    def serves(self, fingerprint: str) -> bool:
        """Whether its process is the one of this fingerprint, with the keys of today, and answers."""
        return self.active == "active" and self.fingerprint == fingerprint and self.keys_current

    def starts(self, fingerprint: str) -> bool:
        """Whether its process is the one of this fingerprint, with the keys of today, and does not answer yet."""
        return self.active == "activating" and self.fingerprint == fingerprint and self.keys_current

    @property
    def runs(self) -> bool:
        return self.active not in ("inactive", "failed")


def quoted(text: str) -> str:
    """`text` as one word of a unit file: nothing in it is expanded (systemd.syntax(7), systemd.service(5))."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    escaped = escaped.replace("\n", "\\n").replace("\r", "\\r")  # either ends a line for systemd
    return f'"{escaped}"' if not escaped or set(escaped) & set(" \t;'\"#\\") else escaped


def argument(text: str) -> str:
    """`text` as one word of ExecStart, where systemd would also replace variables."""
    return quoted(text.replace("$", "$$"))


class Neighbours(NamedTuple):
    """The other profiles' units that must not run beside one, as they would use the same GPUs or port."""

    before: tuple[str, ...]
    """Those ordered before it, so that a start waits for their stop."""
    all: tuple[str, ...]


def neighbours(profile: Profile, others: Iterable[Profile], *, gpus: int, same_port: Iterable[str]) -> Neighbours:
    """Which units conflict with that of `profile` on a host with so many GPUs; a CPU can be shared."""
    ports = set(same_port)
    conflicting = sorted(
        unit_name(other.name)
        for other in others
        if other.name != profile.name and (other.name in ports or _gpus(other, gpus) & _gpus(profile, gpus))
    )
    own = unit_name(profile.name)
    # One order for each pair, or systemd would see a cycle.
    return Neighbours(before=tuple(name for name in conflicting if name < own), all=tuple(conflicting))


def _gpus(profile: Profile, gpus: int) -> set[int]:
    return set(range(gpus)) if profile.gpus == "all" else set(profile.gpus)
