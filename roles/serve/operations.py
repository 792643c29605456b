"""What serve changes."""

from collections.abc import Generator, Mapping, Sequence

from pyinfra.api.command import FunctionCommand, StringCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from roles.files import File, files_in_place
from roles.serve.candidate import Candidate, is_current
from roles.serve.facts import ServeFacts
from roles.serve.good import accepted
from roles.serve.switch import Gate, KeepFailure, switch
from roles.serve.unit import TRIED, UNITS, UnitState


@operation()
def units_in_place(units: Sequence[File], seen: ServeFacts) -> Generator[StringCommand]:
    """Write units, and let systemd read them.

    + units: as they should be
    + seen: the host as it is
    """
    yield from files_in_place._inner(units, seen.files)
    names = {unit.path.rsplit("/", 1)[-1] for unit in units}
    stale = any(seen.units[name].stale for name in names & seen.units.keys())
    if stale or any(seen.files.get(unit.path) != unit.as_seen for unit in units):
        yield StringCommand("systemctl daemon-reload")


@operation()
def served(
    candidates: Sequence[Candidate], seen: ServeFacts, gate: Gate, keep_failure: KeepFailure, prefetch: bool
) -> Generator[FunctionCommand]:
    """Serve these profiles and nothing else, each proven; go back to the last good ones if that fails.

    + candidates: the wanted profiles
    + seen: the host as it is
    + gate: the benchmark that a candidate must pass
    + keep_failure: what keeps the record of one that does not serve
    + prefetch: read weights ahead into free memory
    """
    if is_current(candidates, seen.units, accepted(seen.history)):
        host.noop("it serves as declared")
        return
    yield FunctionCommand(_switch, (candidates, gate, keep_failure, prefetch), {})


def _switch(
    state: State,
    host: Host,
    candidates: Sequence[Candidate],
    gate: Gate,
    keep_failure: KeepFailure,
    prefetch: bool,
) -> bool:
    return switch(host, candidates, gate, keep_failure, prefetch=prefetch)


@operation()
def stopped(units: Mapping[str, UnitState]) -> Generator[StringCommand]:
    """Serve nothing, now and after a boot.

    + units: all units of the host
    """
    left = [name for name, unit in units.items() if unit.runs or unit.enabled]
    if not left:
        host.noop("nothing is served")
        return
    yield StringCommand("systemctl disable --now --quiet", *left)


@operation()
def units_removed(names: Sequence[str]) -> Generator[StringCommand]:
    """Remove the units of profiles that are gone, after what they served was stopped.

    + names: of the units
    """
    for name in names:
        yield StringCommand(f"systemctl disable --now --quiet {name}; rm -f {UNITS}/{name} {TRIED}/{name}")
    if names:
        yield StringCommand("systemctl daemon-reload")
