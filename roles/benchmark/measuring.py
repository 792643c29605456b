"""Measure a server that runs on a host, judge and keep the result: callable from inside any operation."""

import base64
import gzip
import json
import shlex
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Final

import click
from pyinfra.api.host import Host

from inventory import target
from roles import credentials
from roles.benchmark.benchmark import Benchmark
from roles.benchmark.client import ENVIRONMENT, Subject, plan
from roles.benchmark.facts import BenchmarkFacts, Run, benchmark_facts, last_run
from roles.benchmark.gate import judge
from roles.benchmark.keeping import begun, cause_and_log, environment, keep
from roles.benchmark.output import COMPLETE, Output, memory, read_output
from roles.benchmark.prediction import prediction
from roles.benchmark.record import Prediction, Record
from roles.benchmark.rounds import Level, repeats, warm_ups
from roles.benchmark.settings import BenchmarkSettings
from roles.benchmark.table import table
from roles.files import File, write
from roles.jobs import Job, run_job
from roles.observation import observe
from roles.paths import PROGRAMS, RECORDS, STATE, USER
from roles.refusal import Refusal
from roles.remote import ConnectionLost, RemoteError, attempt, run
from roles.serve.candidate import Candidate
from roles.serve.interruption import Interrupted
from roles.serve.steps import why_it_failed

PROGRAM: Final = File(f"{PROGRAMS}/benchmark.py", Path(__file__).with_name("program.py").read_text(encoding="utf-8"))

_HISTORY: Final = 30
"""How many of a profile's records are compared with: enough to know its noise."""

DIRECTORY: Final = f"{STATE}/benchmark"
"""Holds a folder for each measurement that is under way."""


def verify(host: Host, candidate: Candidate, settings: BenchmarkSettings) -> Record:
    """Measure the server, judge the measurement, keep the record on the host and in `results/`, and show it.

    The caller decides what a record that is not `accepted` means.
    """
    facts = benchmark_facts(host)
    record = measure(host, candidate, facts, _prediction(host, candidate), settings)
    earlier = _history(host, facts, candidate.profile.name)
    record = record.model_copy(update={"verdict": judge(record, earlier, candidate.profile.benchmark)})
    keep(host, record)
    click.echo(table(record), err=True)
    return record


def _history(host: Host, facts: BenchmarkFacts, profile: str) -> list[Record]:
    """The last accepted records of a profile. One that cannot be read is reported and passed over."""
    wanted = [name for name in facts.names if name.profile == profile and name.outcome == "accepted"]
    programs = {str(name): f"gzip -c {shlex.quote(f'{RECORDS}/{name}')} | base64 -w 0" for name in wanted[-_HISTORY:]}
    records = []
    for name, lines in (observe(host, programs) if programs else {}).items():
        try:
            text = gzip.decompress(base64.b64decode("".join(lines))).decode()
            records.append(Record.read_json(text, f"{RECORDS}/{name}"))
        except (OSError, EOFError, ValueError) as error:
            reason = str(error) if isinstance(error, Refusal) else f"{RECORDS}/{name}: {error}"
            host.log(f"not compared with: {reason}")
    return records


def _prediction(host: Host, candidate: Candidate) -> Prediction | None:
    wish, profile = target(host), candidate.profile
    draft = wish.models[profile.draft] if profile.draft else None
    return prediction(profile, wish.models[profile.model], draft, wish.hardware)


def measure(
    host: Host, candidate: Candidate, facts: BenchmarkFacts, expected: Prediction | None, settings: BenchmarkSettings
) -> Record:
    """Run the rounds on the host, with progress. What went wrong is in the record, too."""
    record = begun(host, candidate, facts, settings, datetime.now(UTC))
    name = f"{record.profile}-{record.proof}-{record.level}"
    subject = Subject(
        base_url=candidate.url,
        tokenizer=candidate.weights,
        directory=f"{DIRECTORY}/{name}",
    )
    before = last_run(host, candidate.unit_name)
    failure = _run(host, candidate, name, subject, settings)
    output = _fetched(host, subject.output)
    run(host, f"rm -rf {shlex.quote(subject.directory)}")
    ended = _why_it_ended(host, candidate, before) if output.end != COMPLETE else None
    cause, log = ended or (failure if output.end is None else None, output.log)
    return record.model_copy(
        update={
            "finished": datetime.now(UTC),
            "environment": environment(candidate, output.environment),
            "rows": tuple(output.rows),
            "failure": cause,
            "log": log,
            "memory": memory(output.server),
            "prediction": expected,
            "startup_seconds": before.startup_seconds,
        }
    )


def _run(host: Host, candidate: Candidate, name: str, subject: Subject, settings: BenchmarkSettings) -> str | None:
    """Run the measuring program; the reason if it failed. It ends with the server."""
    benchmark, level = candidate.profile.benchmark, settings.depth
    planned = File(
        f"{subject.directory}/plan.json", json.dumps(plan(subject, benchmark, level, settings.round_limit))
    )
    run(host, f"install -d -o {USER} -g {USER} {shlex.quote(subject.directory)}")
    for file in (PROGRAM, planned):
        for command in write(file):
            run(host, command)
    python = str(PurePosixPath(candidate.command.program[0]).with_name("python"))
    job = Job(
        name=f"benchmark-{name}",
        command=shlex.join(["exec", python, "-P", PROGRAM.path, planned.path]),
        environment={**candidate.command.environment, **ENVIRONMENT},
        user=USER,
        limit=_limit(benchmark, level, settings.round_limit),
        credentials={key: credentials.path(key) for key in candidate.keys},
        bound_to=candidate.unit_name,
    )
    try:
        run_job(host, job)
    except Interrupted:
        # The server may be one that stays.
        attempt(host, f"systemctl stop {shlex.quote(job.unit)}; rm -rf {shlex.quote(subject.directory)}")
        raise
    except ConnectionLost:
        raise
    except RemoteError as error:
        lines = str(error).strip().splitlines()
        return f"the measuring program did not end well: {lines[-1] if lines else 'it printed nothing'}"
    return "the server was stopped while it was measured"


def _why_it_ended(host: Host, candidate: Candidate, before: Run) -> tuple[str, tuple[str, ...]] | None:
    """Why the server that was measured is not there any more, and the end of its journal; None if it is."""
    unit = candidate.unit_name
    if last_run(host, unit) == before:
        return None
    return cause_and_log(f"{unit} ended while it was measured\n{why_it_failed(host, unit, before.seen)}")


def _limit(benchmark: Benchmark, level: Level, round_limit: int) -> int:
    """Seconds: every round may take its own limit, and the client's imports their time."""
    rounds = sum(map(len, warm_ups(benchmark, level))) + len(list(repeats(benchmark, level)))
    return 600 + rounds * round_limit


def _fetched(host: Host, path: str) -> Output:
    packed = run(host, f"[ ! -e {shlex.quote(path)} ] || gzip -c {shlex.quote(path)} | base64 -w 0")
    text = gzip.decompress(base64.b64decode(packed)).decode() if packed.strip() else ""
    return read_output(text.splitlines(), f"host {host.name}: {path}")
