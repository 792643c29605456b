"""Switch a host to other profiles: a short list of steps, each with its proof, and the way back."""

from collections.abc import Callable, Sequence

from pyinfra.api.host import Host

from roles.remote import ConnectionLost, RemoteError, reconnect
from roles.serve import steps
from roles.serve.candidate import Candidate, outsiders, runs_as_declared
from roles.serve.described import check_weights, compare_memory
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
        _prepare(host, candidates, before, prefetch)
    except (SwitchError, RemoteError) as failure:
        _say(host, f"nothing was switched: {failure}")
        return False
    try:
        with interruptible():
            _serve(host, candidates, before, gate)
    except (SwitchError, RemoteError, Interrupted) as failure:
        _say(host, f"the switch failed: {failure}")
        _undo(host, candidates, before, failure)
        return False
    return True


def _prepare(host: Host, candidates: Sequence[Candidate], before: ServeFacts, prefetch: bool) -> None:
    """All that can be done and proved while the old server still serves."""
    for candidate in candidates:
        if not runs_as_declared(candidate, before.units):
            check_weights(host, candidate)
            steps.check_port(host, candidate, _leaving(candidates, before))
            if prefetch:
                steps.prefetch(host, candidate)


def _serve(host: Host, candidates: Sequence[Candidate], before: ServeFacts, gate: Gate) -> None:
    """From what runs now to servers that have proven themselves."""
    leaving = _leaving(candidates, before)
    steps.stop(host, leaving)
    for candidate in candidates:
        if not runs_as_declared(candidate, before.units):
            steps.check_released(host, candidate, leaving)
            steps.start(host, candidate)
        compare_memory(host, candidate, steps.smoke(host, candidate))
        gate(host, candidate)
    steps.accept(host, candidates, outsiders(candidates, before.units))


def _leaving(candidates: Sequence[Candidate], before: ServeFacts) -> list[str]:
    """The units that must stop: those that run as they should not, and those that should not run."""
    replaced = [c.unit_name for c in candidates if not runs_as_declared(c, before.units)]
    return [name for name in [*replaced, *outsiders(candidates, before.units)] if before.units[name].runs]


def _undo(host: Host, candidates: Sequence[Candidate], before: ServeFacts, failure: Exception) -> None:
    """Go back, or say why that is left to the next run."""
    try:
        if isinstance(failure, ConnectionLost):
            reconnect(host)
        steps.note_failure(host, candidates, str(failure))
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
