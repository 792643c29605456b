"""A profile as it would be served on one host. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from roles.files import File
from roles.serve.command import Command
from roles.serve.deadline import Start
from roles.serve.profile import Profile
from roles.serve.unit import Neighbours, UnitState, unit_name


class Candidate(NamedTuple):
    """A profile to serve: its command, its unit, and what a switch to it must know."""

    profile: Profile
    command: Command
    unit: File
    neighbours: Neighbours
    weights: str
    """Directory on the host."""
    start: Start
    """What it has to do until it is ready."""

    address: str = "127.0.0.1"
    """Where the server can be reached from the host itself."""
    keys: tuple[str, ...] = ()
    """The credentials that its unit is started with."""

    @property
    def url(self) -> str:
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{address}:{self.command.port}"

    @property
    def unit_name(self) -> str:
        return unit_name(self.profile.name)


def runs_as_declared(candidate: Candidate, units: Mapping[str, UnitState]) -> bool:
    """Whether the unit's process is the one that the profile means, and answers."""
    unit = units.get(candidate.unit_name)
    return unit is not None and unit.serves(candidate.command.fingerprint)


def starts_as_declared(candidate: Candidate, units: Mapping[str, UnitState]) -> bool:
    """Whether the unit is being started, by a run that was killed or by hand, as the profile means."""
    unit = units.get(candidate.unit_name)
    return unit is not None and unit.starts(candidate.command.fingerprint)


def outsiders(candidates: Iterable[Candidate], units: Mapping[str, UnitState]) -> list[str]:
    """Units that run or are enabled although none of the candidates is theirs."""
    wanted = {candidate.unit_name for candidate in candidates}
    return [name for name, unit in units.items() if name not in wanted and (unit.runs or unit.enabled)]


def leaving(candidates: Collection[Candidate], units: Mapping[str, UnitState]) -> list[str]:
    """The units that must stop: those that should not run, and those that run, or are being started, otherwise."""
    right = {c.unit_name for c in candidates if runs_as_declared(c, units) or starts_as_declared(c, units)}
    wanted = [c.unit_name for c in candidates if c.unit_name in units and c.unit_name not in right]
    return [name for name in [*outsiders(candidates, units), *wanted] if units[name].runs]


def is_current(candidates: Iterable[Candidate], units: Mapping[str, UnitState], accepted: Mapping[str, str]) -> bool:
    """Whether the host serves these profiles and nothing else, now and after a boot, and each was found good.

    `accepted`: fingerprint by profile of what was accepted last. What runs is compared, not what happened:
    a run that died half-way is completed by the next.
    """
    candidates = list(candidates)
    return (
        all(runs_as_declared(candidate, units) and units[candidate.unit_name].enabled for candidate in candidates)
        and accepted == {candidate.profile.name: candidate.command.fingerprint for candidate in candidates}
        and not outsiders(candidates, units)
    )
