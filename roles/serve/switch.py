"""Switch a host to other profiles: a short list of steps, each with its proof, and the way back."""

from collections.abc import Callable, Sequence

from pyinfra.api.host import Host

from roles.remote import ConnectionLost, RemoteError, reconnect
from roles.serve import steps
from roles.serve.candidate import Candidate, outsiders, runs_as_declared
from roles.serve.facts import ServeFacts, serve_facts
from roles.serve.good import accepted
from roles.serve.interruption import Interrupted, interruptible
from roles.serve.steps import SwitchError
from roles.serve.unit import unit_name

Gate = Callable[[Host, Candidate], None]
"""The benchmark: returns if the candidate performs as its profile says, raises SwitchError if not."""


def switch(host: Host, candidates: Sequence[Candidate], gate: Gate, *, prefetch: bool) -> bool:
    """Serve the candidates and nothing else, or what was good before. Returns whether the candidates serve."""
    before = serve_facts(host)
    try:
        with interruptible():
            for candidate in candidates:
                _bring_up(host, candidate, candidates, gate, prefetch)
            steps.accept(host, candidates, outsiders(candidates, before.units))
    except (SwitchError, RemoteError, Interrupted) as failure:
        _say(host, f"the switch failed: {failure}")
        _undo(host, candidates, before, lost=isinstance(failure, ConnectionLost))
        return False
    return True


def _bring_up(host: Host, candidate: Candidate, candidates: Sequence[Candidate], gate: Gate, prefetch: bool) -> None:
    """One candidate from what runs now to a server that has proven itself."""
    units = serve_facts(host).units
    if not runs_as_declared(candidate, units):
        own = [candidate.unit_name] if units[candidate.unit_name].runs else []
        leaving = [*own, *(name for name in outsiders(candidates, units) if units[name].runs)]
        steps.check_port(host, candidate, leaving)
        if prefetch:
            steps.prefetch(host, candidate)
        steps.stop(host, leaving)
        steps.check_released(host, candidate, leaving)
        steps.start(host, candidate)
    steps.smoke(host, candidate)
    gate(host, candidate)


def _undo(host: Host, candidates: Sequence[Candidate], before: ServeFacts, *, lost: bool) -> None:
    """Go back, or say why that is left to the next run."""
    try:
        if lost:
            reconnect(host)
        _go_back(host, candidates, before)
    except RemoteError as error:
        _say(host, f"going back was not possible: {error}")
        _say(host, "deploy again when the host can be reached: that completes the switch, or goes back")


def _go_back(host: Host, candidates: Sequence[Candidate], before: ServeFacts) -> None:
    """Serve what was accepted last, as it was then, and prove it ready; or leave the host stopped and say so."""
    good = [unit_name(profile) for profile in accepted(before.history)]
    units = serve_facts(host).units
    ours = [candidate.unit_name for candidate in candidates]
    steps.stop(host, [name for name in ours if units[name].runs])
    if not good:
        _say(host, "nothing was good before, so the host serves nothing: correct the profile and deploy again")
        return
    steps.put_back(host, good)
    try:
        for unit in good:
            steps.start_unit(host, unit)
    except (SwitchError, RemoteError) as failure:
        steps.stop(host, good)
        _say(host, f"going back to {', '.join(good)} failed as well, so the host serves nothing: {failure}")
        _say(host, "deploy again when the cause is removed; `--data profile=previous` means what served before")
        return
    _say(host, f"{', '.join(good)} serves again, as before")


def _say(host: Host, text: str) -> None:
    host.log_styled(text, fg="red")
