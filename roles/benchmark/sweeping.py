"""Run a sweep on a host: try each profile, keep what came of it, and end with the one that served before."""

import shlex
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click
from pyinfra.api.host import Host

from inventory import target
from roles.benchmark.facts import benchmark_facts
from roles.benchmark.gate import judge
from roles.benchmark.measuring import failed, keep, verify
from roles.benchmark.record import Record
from roles.benchmark.results import RESULTS, folder
from roles.benchmark.settings import BenchmarkSettings
from roles.benchmark.sweep import Entry, Sweep, Trial, key, rankings, trials
from roles.benchmark.table import ranking_table
from roles.files import write
from roles.refusal import Refusal
from roles.remote import RemoteError, run
from roles.serve import steps
from roles.serve.candidate import Candidate
from roles.serve.declared import Declared, declared, wanted_names
from roles.serve.described import check_weights
from roles.serve.facts import serve_facts
from roles.serve.good import accepted
from roles.serve.interruption import Interrupted, interruptible
from roles.serve.unit import UNITS, unit_name
from roles.sglang.catalogue import Catalogue
from roles.sglang.settings import SglangSettings


def planned(host: Host) -> tuple[list[Trial], Declared]:
    """What the host's variables ask to try, and how each of it would be served there."""
    wish, mode = target(host), BenchmarkSettings.of(host).sweep_mode
    (base,) = wanted_names(host)[:1]
    listed = [wish.profiles[name] for name in wish.variables.sweep]
    catalogue = Catalogue.load(SglangSettings.of(host).version)
    tried = trials(wish.profiles[base], wish.variables.vary, listed, mode, catalogue)
    if not tried:
        raise Refusal("sweep: nothing to try; set `sweep` to names of profiles, or `vary` to values")
    return tried, declared(host, {trial.name: trial.profile for trial in tried})


def sweep(host: Host, tried: Sequence[Trial], declaration: Declared) -> bool:
    """Try what has not been tried. False if it was interrupted, or what served before does not serve again."""
    settings = BenchmarkSettings.of(host)
    path = _path(host, tried)
    state = _state(path) or Sweep.planned(
        host.name, tried, settings.sweep_mode, settings.depth, datetime.now(UTC), declaration.unsuitable
    )
    _save(path, state)
    units = serve_facts(host).units
    before = [name for name, unit in units.items() if unit.enabled]
    whole = True
    try:
        with interruptible():
            _try_all(host, state, declaration.candidates, settings, path)
    except Interrupted:
        host.log_styled("the sweep was interrupted; run it again and it goes on from here", fg="yellow")
        whole = False
    finally:
        restored = _restore(host, before, tried)
        from roles.benchmark.report import write_report  # here, because drawing takes a second to import

        write_report()
    _show(host, _state(path) or state)
    return whole and restored


def _try_all(
    host: Host,
    state: Sweep,
    candidates: Mapping[str, Candidate],
    settings: BenchmarkSettings,
    path: Path,
) -> None:
    end = time.monotonic() + 60 * settings.sweep_time_limit if settings.sweep_time_limit else None
    for entry in state.waiting:
        left = state.time_left()
        per_trial = left.total_seconds() / len(state.waiting) if left else 0
        if end is not None and time.monotonic() + per_trial > end:
            host.log(f"no time for {len(state.waiting)} more trials; run the sweep again to go on")
            break
        host.log(state.progress(entry))
        start = time.monotonic()
        record = _tried(host, candidates[entry.name], settings)
        state = state.with_entry(_outcome(entry, record, time.monotonic() - start))
        _save(path, state)


def _outcome(entry: Entry, record: Record, seconds: float) -> Entry:
    cause = record.failure or ""
    status = "failed" if record.failure else "measured"
    return entry.model_copy(update={"status": status, "cause": cause, "record": record.name, "seconds": seconds})


def _tried(host: Host, candidate: Candidate, settings: BenchmarkSettings) -> Record:
    """Serve one profile and measure it. What goes wrong is a result, with its cause."""
    started = datetime.now(UTC)
    try:
        _bring_up(host, candidate)
    except (steps.SwitchError, RemoteError) as error:
        record = failed(host, candidate, benchmark_facts(host), settings, started, str(error))
        record = record.model_copy(update={"verdict": judge(record, [], candidate.profile.benchmark)})
        keep(host, record)
        host.log_styled(f"{candidate.profile.name} failed: {record.failure}", fg="red")
        return record
    return verify(host, candidate, settings)


def _bring_up(host: Host, candidate: Candidate) -> None:
    check_weights(host, candidate)
    running = [name for name, unit in serve_facts(host).units.items() if unit.runs]
    steps.check_port(host, candidate, running)
    steps.stop(host, running)
    steps.check_released(host, candidate, running)
    for command in write(candidate.unit):
        run(host, command)
    steps.start(host, candidate)
    steps.smoke(host, candidate)


def _restore(host: Host, before: Sequence[str], tried: Sequence[Trial]) -> bool:
    """Serve what is enabled, as it was when it was accepted; remove the units of mere variations."""
    seen, known = serve_facts(host), target(host).profiles
    good = {unit_name(profile): fingerprint for profile, fingerprint in accepted(seen.history).items()}
    variations = [
        name for trial in tried if trial.name not in known and (name := unit_name(trial.name)) in seen.units
    ]
    right = [
        name
        for name in before
        if (unit := seen.units[name]).active == "active" and good.get(name) in (unit.fingerprint, None)
    ]
    try:
        steps.stop(host, [name for name, unit in seen.units.items() if unit.runs and name not in right])
        if variations:
            run(host, f"cd {UNITS} && rm -f {shlex.join(variations)} && systemctl daemon-reload")
        if kept := [name for name in before if name in good]:
            steps.put_back(host, kept)
        for name in before:
            if name not in right:
                steps.start_unit(host, name)
    except (steps.SwitchError, RemoteError) as error:
        host.log_styled(f"what served before could not be started again: {error}", fg="red")
        return False
    return True


def is_finished(host: Host, tried: Sequence[Trial]) -> bool:
    """Whether nothing is left to try."""
    state = _state(_path(host, tried))
    return state is not None and not state.waiting


def _path(host: Host, tried: Sequence[Trial]) -> Path:
    return RESULTS / folder(host.name) / "sweeps" / f"{key(tried, BenchmarkSettings.of(host).depth)}.json"


def _state(path: Path) -> Sweep | None:
    """What an earlier run of the same sweep has come to."""
    return Sweep.read_json(path.read_text(encoding="utf-8"), str(path)) if path.exists() else None


def _save(path: Path, state: Sweep) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(state.model_dump_json(indent=1) + "\n", encoding="utf-8")
    new.replace(path)


def _show(host: Host, state: Sweep) -> None:
    place = RESULTS / folder(host.name)
    records = {
        entry.name: Record.read_json((place / entry.record).read_text(encoding="utf-8"), entry.record)
        for entry in state.entries
        if entry.status == "measured" and entry.record
    }
    click.echo(ranking_table(state, rankings(records)), err=True)
