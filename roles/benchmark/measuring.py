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
from roles.benchmark import program
from roles.benchmark.benchmark import Benchmark
from roles.benchmark.client import ENVIRONMENT, Subject, plan
from roles.benchmark.facts import BenchmarkFacts, benchmark_facts, history
from roles.benchmark.gate import judge
from roles.benchmark.output import Output, memory, read_output
from roles.benchmark.prediction import prediction
from roles.benchmark.record import Environment, Prediction, Record, proof, proven
from roles.benchmark.results import RESULTS, folder
from roles.benchmark.rounds import Level, repeats, warm_ups
from roles.benchmark.settings import BenchmarkSettings
from roles.benchmark.table import table
from roles.files import File, write
from roles.jobs import Job, run_job
from roles.paths import PROGRAMS, RECORDS, STATE, USER
from roles.remote import RemoteError, run
from roles.serve.candidate import Candidate
from roles.serve.profile import Profile

PROGRAM: Final = File(f"{PROGRAMS}/benchmark.py", Path(program.__file__).read_text(encoding="utf-8"))


def references(profile: Profile) -> dict[int, float]:
    """Output tokens per second by concurrency; the first reference of each counts."""
    return {reference.concurrency: reference.output_tokens_per_second for reference in reversed(profile.reference)}


def proof_of(candidate: Candidate, facts: BenchmarkFacts) -> str:
    """What has to be proven of a server on a host."""
    profile = candidate.profile
    return proof(candidate.command.fingerprint, facts.machine, profile.benchmark, references(profile))


def is_proven(candidate: Candidate, facts: BenchmarkFacts, settings: BenchmarkSettings) -> bool:
    """Whether there is nothing to measure."""
    if settings.level == "off":
        return True
    wanted = proof_of(candidate, facts)
    return not settings.again and proven(facts.names, wanted, settings.depth) is not None


def verify(host: Host, candidate: Candidate, settings: BenchmarkSettings) -> Record:
    """Measure the server, judge the measurement, keep the record on the host and in `results/`, and show it.

    The caller decides what a record that is not `accepted` means.
    """
    facts = benchmark_facts(host)
    record = measure(host, candidate, facts, _prediction(host, candidate), settings)
    earlier = history(host, facts, candidate.profile.name)
    record = record.model_copy(update={"verdict": judge(record, earlier, candidate.profile.benchmark)})
    keep(host, record)
    click.echo(table(record), err=True)
    return record


def _prediction(host: Host, candidate: Candidate) -> Prediction | None:
    wish, profile = target(host), candidate.profile
    draft = wish.models[profile.draft] if profile.draft else None
    return prediction(profile, wish.models[profile.model], draft, wish.hardware)


def measure(
    host: Host, candidate: Candidate, facts: BenchmarkFacts, expected: Prediction | None, settings: BenchmarkSettings
) -> Record:
    """Run the rounds on the host, with progress. What went wrong is in the record, too."""
    record = _unmeasured(host, candidate, facts, settings, datetime.now(UTC))
    benchmark, name = candidate.profile.benchmark, f"{record.profile}-{record.proof}-{record.level}"
    subject = Subject(
        base_url=candidate.url,
        tokenizer=candidate.weights,
        directory=f"{STATE}/benchmark/{name}",
    )
    rounds = plan(subject, benchmark, record.level, settings.round_limit)
    planned = File(f"{subject.directory}/plan.json", json.dumps(rounds))
    run(host, f"install -d -o {USER} -g {USER} {shlex.quote(subject.directory)}")
    for file in (PROGRAM, planned):
        for command in write(file):
            run(host, command)
    failure = _run(host, candidate, name, planned.path, _limit(benchmark, record.level, settings.round_limit))
    output = _fetched(host, subject.output)
    run(host, f"rm -rf {shlex.quote(subject.directory)}")
    return record.model_copy(
        update={
            "finished": datetime.now(UTC),
            "environment": _environment(output, candidate),
            "rows": tuple(output.rows),
            "failure": failure if output.end is None else None,
            "log": output.log,
            "memory": memory(output.server),
            "prediction": expected,
        }
    )


def failed(
    host: Host,
    candidate: Candidate,
    facts: BenchmarkFacts,
    settings: BenchmarkSettings,
    started: datetime,
    text: str,
) -> Record:
    """The record of a server that could not be measured; `text` says in its first two lines what failed and why."""
    lines = text.strip().splitlines()
    cause = ": ".join(line.strip().rstrip(":") for line in lines[:2]) or "unknown"
    record = _unmeasured(host, candidate, facts, settings, started)
    return record.model_copy(update={"failure": cause, "log": tuple(lines[2:])})


def _unmeasured(
    host: Host, candidate: Candidate, facts: BenchmarkFacts, settings: BenchmarkSettings, started: datetime
) -> Record:
    profile = candidate.profile
    return Record(
        host=host.name,
        profile=profile.name,
        model=profile.model,
        fingerprint=candidate.command.fingerprint,
        proof=proof_of(candidate, facts),
        family=facts.family(profile.name),
        level=settings.depth,
        started=started,
        finished=datetime.now(UTC),
        environment=_environment(Output(), candidate),
        references=references(profile),
    )


def _run(host: Host, candidate: Candidate, name: str, planned: str, limit: int) -> str | None:
    """Run the measuring program; the reason if it failed."""
    python = str(PurePosixPath(candidate.command.program[0]).with_name("python"))
    command = shlex.join(["exec", python, "-P", PROGRAM.path, planned])
    environment = {**candidate.command.environment, **ENVIRONMENT}
    keys = {key: credentials.path(key) for key in candidate.keys}
    try:
        run_job(host, Job(f"benchmark-{name}", command, environment, user=USER, limit=limit, credentials=keys))
    except RemoteError as error:
        lines = str(error).strip().splitlines()
        return f"the measuring program did not end well: {lines[-1] if lines else 'it printed nothing'}"
    return None


def _limit(benchmark: Benchmark, level: Level, round_limit: int) -> int:
    """Seconds: every round may take its own limit, and the client's imports their time."""
    rounds = sum(map(len, warm_ups(benchmark, level))) + len(list(repeats(benchmark, level)))
    return 600 + rounds * round_limit


def _fetched(host: Host, path: str) -> Output:
    packed = run(host, f"[ ! -e {shlex.quote(path)} ] || gzip -c {shlex.quote(path)} | base64 -w 0")
    text = gzip.decompress(base64.b64decode(packed)).decode() if packed.strip() else ""
    return read_output(text.splitlines(), f"host {host.name}: {path}")


def _environment(output: Output, candidate: Candidate) -> Environment:
    command = candidate.command
    known = {
        "release": PurePosixPath(command.program[0]).parent.parent.name,
        "command": command.argv,
        "variables": program.without_secrets(dict(command.environment)),
    }
    return Environment.read({**output.environment, **known}, "output of the benchmark")


def keep(host: Host, record: Record) -> None:
    """Write the record to `results/<host>/` and to the host. Neither is ever overwritten or removed."""
    local = RESULTS / folder(record.host) / record.name
    local.parent.mkdir(parents=True, exist_ok=True)
    local.write_text(record.to_json(), encoding="utf-8")
    for command in write(File(f"{RECORDS}/{record.name}", record.to_json())):
        run(host, command)
    from roles.benchmark.report import write_report  # here, because drawing takes a second to import

    write_report()
