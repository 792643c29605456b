"""Run a sweep on a host: try each profile, keep what came of it, and end with the one that served before."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import click
from pyinfra.api.host import Host

from inventory import target
from roles.benchmark.facts import benchmark_facts
from roles.benchmark.keeping import keep_failure
from roles.benchmark.measuring import DIRECTORY, verify
from roles.benchmark.proof import proof_of
from roles.benchmark.record import Record
from roles.benchmark.results import RESULTS, folder, readable, write_whole
from roles.benchmark.settings import BenchmarkSettings
from roles.benchmark.sweep import Entry, Sweep, sweep_key, what_came_of
from roles.benchmark.table import sweep_table
from roles.benchmark.trials import Trial, trials
from roles.lock import check_lock, lock_program
from roles.refusal import Refusal
from roles.remote import ConnectionLost, RemoteError, reconnect, run
from roles.serve import preparation, steps
from roles.serve.candidate import Candidate
from roles.serve.declared import Declared, declared, wanted_names
from roles.serve.described import check_weights
from roles.serve.facts import serve_facts
from roles.serve.good import accepted
from roles.serve.interruption import Interrupted, interruptible
from roles.serve.unit import unit_name
from roles.sglang.catalogue import Catalogue
from roles.sglang.settings import SglangSettings


class Plan(NamedTuple):
    """A sweep on one host, and how far it has come."""

    tried: Sequence[Trial]
    declaration: Declared
    state: Sweep

    @property
    def is_finished(self) -> bool:
        return not self.state.waiting


def planned(host: Host) -> Plan:
    """What the host's variables ask to try, and what has become of it. Raises Refusal if they ask for nothing."""
    wish, settings = target(host), BenchmarkSettings.of(host)
    (base,) = wanted_names(host)[:1]
    listed = [wish.profiles[name] for name in wish.variables.sweep]
    catalogue = Catalogue.load(SglangSettings.of(host).version)
    tried = trials(wish.profiles[base], wish.variables.vary, listed, settings.sweep_mode, catalogue)
    if not tried:
        raise Refusal("sweep: nothing to try; set `sweep` to names of profiles, or `vary` to values")
    declaration = declared(host, {trial.name: trial.profile for trial in tried})
    facts = benchmark_facts(host)
    proofs = {name: proof_of(candidate, facts) for name, candidate in declaration.candidates.items()}
    key = sweep_key(tried, proofs, settings.depth)
    state = _latest(host, key)
    if state is None or (settings.again and not state.waiting):
        state = Sweep.planned(
            host.name, key, tried, settings.sweep_mode, settings.depth, datetime.now(UTC), declaration.unsuitable
        )
    return Plan(tried, declaration, state)


def sweep(host: Host, plan: Plan) -> bool:
    """Try what has not been tried. False if it ended early, or what served before does not serve again."""
    before = [name for name, unit in serve_facts(host).units.items() if unit.enabled]
    _save(host, plan.state)
    ended = None
    try:
        with interruptible():
            _try_all(host, plan)
    except Exception as error:  # whatever it is, what served before shall serve again
        ended = error
        host.log_styled(f"the sweep ended early ({_said(error)}); run it again and it goes on from here", fg="yellow")
    restored = _restore(host, before, lost=isinstance(ended, ConnectionLost))
    from roles.benchmark.report import write_report  # here, because drawing takes a second to import

    write_report()
    show(host, _latest(host, plan.state.key) or plan.state)
    return ended is None and restored


def _said(ended: Exception) -> str:
    return "interrupted" if isinstance(ended, Interrupted) else str(ended) or type(ended).__name__


def _try_all(host: Host, plan: Plan) -> None:
    settings, state = BenchmarkSettings.of(host), plan.state
    end = time.monotonic() + 60 * settings.sweep_time_limit if settings.sweep_time_limit else None
    for entry in state.waiting:
        left = state.time_left()
        per_trial = left.total_seconds() / len(state.waiting) if left else 0
        if end is not None and time.monotonic() + per_trial > end:
            host.log(f"no time for {len(state.waiting)} more trials; run the sweep again to go on")
            break
        host.log(state.progress(entry))
        start = time.monotonic()
        record = _tried(host, plan.declaration.candidates[entry.name], settings)
        state = state.with_entry(_outcome(entry, record, time.monotonic() - start))
        _save(host, state)


def _outcome(entry: Entry, record: Record, seconds: float) -> Entry:
    status, cause = what_came_of(record)
    return entry.model_copy(update={"status": status, "cause": cause, "record": record.name, "seconds": seconds})


def _tried(host: Host, candidate: Candidate, settings: BenchmarkSettings) -> Record:
    """Serve one profile and measure it. What goes wrong is a result, with its cause, but for the connection."""
    started = datetime.now(UTC)
    try:
        _bring_up(host, candidate)
        return verify(host, candidate, settings)
    except ConnectionLost:
        raise
    except (steps.SwitchError, RemoteError, Refusal) as error:
        record = keep_failure(host, candidate, started, str(error))
        host.log_styled(f"{candidate.profile.name} failed: {record.failure}", fg="red")
        return record


def _bring_up(host: Host, candidate: Candidate) -> None:
    check_weights(host, candidate)
    running = [name for name, unit in serve_facts(host).units.items() if unit.runs]
    preparation.check_port(host, candidate, running)
    deadline = preparation.check_deadline(host, candidate)
    steps.stop(host, running)
    steps.check_released(host, candidate, running)
    steps.start(host, candidate, deadline)
    steps.smoke(host, candidate)


def _restore(host: Host, before: Sequence[str], *, lost: bool) -> bool:
    """Serve what is enabled, as it was when it was accepted. Whether that was possible. `lost`: the connection."""
    try:
        if lost:
            reconnect(host)
            check_lock(run(host, lock_program()).splitlines(), host.name)  # it was the old connection's
        _go_back(host, before)
    except (steps.SwitchError, RemoteError, Refusal) as error:
        host.log_styled(f"what served before could not be started again: {error}", fg="red")
        return False
    return True


def _go_back(host: Host, before: Sequence[str]) -> None:
    seen = serve_facts(host)
    good = {unit_name(profile): fingerprint for profile, fingerprint in accepted(seen.history).items()}
    right = [
        name
        for name in before
        if (unit := seen.units[name]).active == "active" and good.get(name) in (unit.fingerprint, None)
    ]
    steps.stop(host, [name for name, unit in seen.units.items() if unit.runs and name not in right])
    run(host, f"rm -rf {DIRECTORY}/*")  # of a run that was killed
    steps.put_back(host, [name for name in before if name in good])
    for name in before:
        if name not in right:
            steps.start_unit(host, name)


def show(host: Host, state: Sweep) -> None:
    """What became of every trial, who is best at what, and the Pareto set."""
    records, _ = readable((RESULTS / folder(host.name)).glob("*.json"), Record.read_json)
    click.echo(sweep_table(state, records), err=True)


def _latest(host: Host, key: str) -> Sweep | None:
    """What the last run of the same sweep has come to."""
    paths = sorted(_folder(host).glob(f"*.{key}.json"))
    return Sweep.read_json(paths[-1].read_text(encoding="utf-8"), str(paths[-1])) if paths else None


def _save(host: Host, state: Sweep) -> None:
    write_whole(_folder(host) / state.name, state.model_dump_json(indent=1) + "\n")


def _folder(host: Host) -> Path:
    return RESULTS / folder(host.name) / "sweeps"
