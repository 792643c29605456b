"""Switch a host to other profiles: a short list of steps, each with its proof, and the way back."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from pyinfra.api.host import Host

from roles.lock import check_lock, lock_program
from roles.preflight.operations import check_collective
from roles.refusal import Refusal
from roles.remote import ConnectionLost, RemoteError, reconnect, run
from roles.serve import preparation, steps
from roles.serve.candidate import Candidate, leaving, outsiders, runs_as_declared, starts_as_declared
from roles.serve.deadline import Deadline
from roles.serve.described import check_weights, compare_memory
from roles.serve.facts import ServeFacts, serve_facts
from roles.serve.good import accepted
from roles.serve.interruption import guarded, interruptible
from roles.serve.steps import SwitchError
from roles.serve.unit import unit_name

Gate = Callable[[Host, Candidate], None]
"""The benchmark: returns if the candidate performs as its profile says, raises SwitchError if not."""

KeepFailure = Callable[[Host, Candidate, datetime, str], object]
"""Keep the record of a candidate whose start began then and that does not serve, for the reason given."""


class NotServing(SwitchError):  # noqa: N818 -- it is what happened
    """A candidate does not get as far as to be measured."""

    def __init__(self, candidate: Candidate, began: datetime, reason: str) -> None:
        super().__init__(reason)
        self.candidate = candidate
        self.began = began


def switch(
    host: Host, candidates: Sequence[Candidate], gate: Gate, keep_failure: KeepFailure, *, prefetch: bool
) -> bool:
    """Serve the candidates and nothing else, or what was good before. Returns whether the candidates serve."""
    before = serve_facts(host)
    with guarded():
        try:
            with interruptible():
                deadlines = _prepare(host, candidates, before, prefetch)
        except Exception as failure:  # whatever it is, nothing was stopped yet
            _say(host, f"nothing was switched: {failure}")
            return False
        try:
            with interruptible():
                _serve(host, candidates, before, deadlines, gate)
            steps.accept(host, candidates, outsiders(candidates, before.units))
        except Exception as failure:  # whatever it is, the host is not left between two profiles
            _say(host, f"the switch failed: {failure}")
            _undo(host, candidates, before, failure, keep_failure)
            return False
    return True


def _prepare(
    host: Host, candidates: Sequence[Candidate], before: ServeFacts, prefetch: bool
) -> Mapping[str, Deadline]:
    """All that can be done and proved while the old server still serves. Returns how long each start may take."""
    deadlines = {}
    preparation.check_room(host)
    for candidate in candidates:
        if runs_as_declared(candidate, before.units):
            continue
        check_weights(host, candidate)
        preparation.check_port(host, candidate, leaving(candidates, before.units))
        if starts_as_declared(candidate, before.units):
            continue
        deadlines[candidate.unit_name] = preparation.check_deadline(host, candidate)
        if prefetch:
            preparation.prefetch(host, candidate)
    return deadlines


def _serve(
    host: Host, candidates: Sequence[Candidate], before: ServeFacts, deadlines: Mapping[str, Deadline], gate: Gate
) -> None:
    """From what runs now to servers that have proven themselves."""
    stopped = leaving(candidates, before.units)
    steps.stop(host, stopped)
    for candidate in candidates:
        began = datetime.now(UTC)
        try:
            if starts_as_declared(candidate, before.units):
                steps.start_unit(host, candidate.unit_name)
            elif not runs_as_declared(candidate, before.units):
                steps.check_released(host, candidate, stopped)
                check_collective(host, candidate.profile)
                steps.start(host, candidate, deadlines[candidate.unit_name])
            compare_memory(host, candidate, steps.smoke(host, candidate))
        except ConnectionLost:
            raise
        except (SwitchError, RemoteError) as failure:
            raise NotServing(candidate, began, str(failure)) from None
        gate(host, candidate)


def _undo(
    host: Host, candidates: Sequence[Candidate], before: ServeFacts, failure: Exception, keep_failure: KeepFailure
) -> None:
    """Go back, or say why that is left to the next run; leave the reason on the host."""
    try:
        if isinstance(failure, ConnectionLost):
            reconnect(host)
            check_lock(run(host, lock_program()).splitlines(), host.name)
        outcome = _go_back(host, candidates, before)
    except Refusal as refusal:  # the host is another run's now
        _say(host, f"going back is left to it: {refusal}")
        return
    except Exception as error:
        outcome = f"going back was not possible: {error}; deploy again when the host can be reached"
    _say(host, outcome)
    try:
        steps.note_failure(host, candidates, f"{failure}\n{outcome}")
        if isinstance(failure, NotServing):
            keep_failure(host, failure.candidate, failure.began, str(failure))
    except RemoteError as error:
        _say(host, f"the reason could not be left on the host: {error}")


def _go_back(host: Host, candidates: Sequence[Candidate], before: ServeFacts) -> str:
    """Serve what was accepted last, as it was then, and nothing else; or serve nothing. Returns what came of it."""
    fingerprints = {unit_name(profile): fingerprint for profile, fingerprint in accepted(before.history).items()}
    good = list(fingerprints)
    units = serve_facts(host).units
    serving = [name for name in good if name in units and units[name].serves(fingerprints[name])]
    ended = [c for c in candidates if c.unit_name not in serving]
    steps.stop(host, [c.unit_name for c in ended if c.unit_name in units and units[c.unit_name].runs])
    steps.put_back(host, good)
    if not good:
        return "nothing was good before, so the host serves nothing: correct the profile and deploy again"
    try:
        for candidate in ended:
            steps.check_released(host, candidate, [candidate.unit_name])
        for name in good:
            if name not in serving:
                steps.start_unit(host, name)
        steps.enable_only(host, good, [name for name in units if name not in good])
    except (SwitchError, RemoteError) as failure:
        failed = [name for name in good if name not in serving]
        steps.stop(host, failed)
        return (
            f"going back to {', '.join(failed)} failed as well, so it is left stopped: {failure}\n"
            "deploy again when the cause is removed"
        )
    return f"{', '.join(good)} serves again, as before"


def _say(host: Host, text: str) -> None:
    host.log_styled(text, fg="red")
