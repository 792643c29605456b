"""Switch a host to other profiles: a short list of steps, each with its proof, and the way back."""

from collections.abc import Callable, Sequence

from pyinfra.api.host import Host

from roles.lock import lock_program
from roles.remote import ConnectionLost, RemoteError, attempt, reconnect
from roles.serve import steps
from roles.serve.candidate import Candidate, outsiders, runs_as_declared
from roles.serve.described import check_weights, compare_memory
from roles.serve.facts import ServeFacts, serve_facts
from roles.serve.good import accepted
from roles.serve.interruption import guarded, interruptible
from roles.serve.steps import SwitchError
from roles.serve.unit import unit_name

Gate = Callable[[Host, Candidate], None]
"""The benchmark: returns if the candidate performs as its profile says, raises SwitchError if not."""


def switch(host: Host, candidates: Sequence[Candidate], gate: Gate, *, prefetch: bool) -> bool:
    """Serve the candidates and nothing else, or what was good before. Returns whether the candidates serve."""
    before = serve_facts(host)
    good = [unit_name(profile) for profile in accepted(before.history)]
    with guarded():
        try:
            _prepare(host, candidates, before, prefetch)
        except Exception as failure:  # whatever it is, nothing was stopped yet
            _say(host, f"nothing was switched: {failure}")
            _leave_as_it_was(host, good)
            return False
        try:
            with interruptible():
                _serve(host, candidates, before, gate)
            steps.accept(host, candidates, outsiders(candidates, before.units))
        except Exception as failure:  # whatever it is, the host is not left between two profiles
            _say(host, f"the switch failed: {failure}")
            _undo(host, candidates, before, failure)
            return False
    return True


def _leave_as_it_was(host: Host, good: Sequence[str]) -> None:
    """The units that a boot would start are those that were accepted, not what was written to be tried."""
    try:
        steps.put_back(host, good)
    except RemoteError as error:
        _say(host, f"the accepted units could not be put back: {error}")


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


def _leaving(candidates: Sequence[Candidate], before: ServeFacts) -> list[str]:
    """The units that must stop: those that run as they should not, and those that should not run."""
    replaced = [c.unit_name for c in candidates if not runs_as_declared(c, before.units)]
    return [name for name in [*replaced, *outsiders(candidates, before.units)] if before.units[name].runs]


def _undo(host: Host, candidates: Sequence[Candidate], before: ServeFacts, failure: Exception) -> None:
    """Go back, or say why that is left to the next run; leave the reason on the host."""
    try:
        if isinstance(failure, ConnectionLost):
            reconnect(host)
            attempt(host, lock_program())  # it was the old connection's
        outcome = _go_back(host, candidates, before)
    except Exception as error:
        outcome = f"going back was not possible: {error}; deploy again when the host can be reached"
    _say(host, outcome)
    try:
        steps.note_failure(host, candidates, f"{failure}\n{outcome}")
    except RemoteError as error:
        _say(host, f"the reason could not be left on the host: {error}")


def _go_back(host: Host, candidates: Sequence[Candidate], before: ServeFacts) -> str:
    """Serve what was accepted last, as it was then, and nothing else; or serve nothing. Returns what came of it."""
    fingerprints = {unit_name(profile): fingerprint for profile, fingerprint in accepted(before.history).items()}
    good = list(fingerprints)
    units = serve_facts(host).units
    serving = [name for name in good if name in units and units[name].serves(fingerprints[name])]
    ended = [c for c in candidates if c.unit_name not in serving]
    steps.stop(host, [c.unit_name for c in ended if units[c.unit_name].runs])
    if not good:
        return "nothing was good before, so the host serves nothing: correct the profile and deploy again"
    steps.put_back(host, good)
    try:
        for candidate in ended:
            steps.check_released(host, candidate, [candidate.unit_name])
        for name in good:
            if name not in serving:
                steps.start_unit(host, name)
        steps.enable_only(host, good, [name for name in units if name not in good])
    except (SwitchError, RemoteError) as failure:
        steps.stop(host, good)
        return (
            f"going back to {', '.join(good)} failed as well, so the host serves nothing: {failure}\n"
            "deploy again when the cause is removed"
        )
    return f"{', '.join(good)} serves again, as before"


def _say(host: Host, text: str) -> None:
    host.log_styled(text, fg="red")
