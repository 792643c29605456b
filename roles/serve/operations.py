"""What serve changes."""

from collections.abc import Generator, Mapping, Sequence

from pyinfra.api.command import FunctionCommand, StringCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from roles.serve.candidate import Candidate, is_current
from roles.serve.facts import ServeFacts
from roles.serve.good import accepted
from roles.serve.switch import Gate, switch
from roles.serve.unit import UnitState


@operation()
def units_read(needed: bool) -> Generator[StringCommand]:
    """Let systemd read its unit files.

    + needed: whether one of them is newer than what it has read
    """
    if not needed:
        host.noop("systemd has read all units")
        return
    yield StringCommand("systemctl daemon-reload")


@operation()
def served(
    candidates: Sequence[Candidate], seen: ServeFacts, gate: Gate, prefetch: bool
) -> Generator[FunctionCommand]:
    """Serve these profiles and nothing else, each proven; go back to the last good ones if that fails.

    + candidates: the wanted profiles
    + seen: the host as it is
    + gate: the benchmark that a candidate must pass
    + prefetch: read weights ahead into free memory
    """
    if is_current(candidates, seen.units, accepted(seen.history)):
        host.noop("it serves as declared")
        return
    yield FunctionCommand(_switch, (candidates, gate, prefetch), {})


def _switch(state: State, host: Host, candidates: Sequence[Candidate], gate: Gate, prefetch: bool) -> bool:
    return switch(host, candidates, gate, prefetch=prefetch)


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
def units_removed(paths: Sequence[str]) -> Generator[StringCommand]:
    """Remove the units of profiles that are gone, after what they served was stopped.

    + paths: of the unit files
    """
    for path in paths:
        yield StringCommand(f"systemctl disable --now --quiet {path.rsplit('/', 1)[-1]}; rm -f {path}")
    if paths:
        yield StringCommand("systemctl daemon-reload")
