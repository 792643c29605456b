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

from roles.benchmark import program
from roles.benchmark.benchmark import Benchmark
from roles.benchmark.client import ENVIRONMENT, Subject, plan
from roles.benchmark.facts import BenchmarkFacts, benchmark_facts, history
from roles.benchmark.gate import judge
from roles.benchmark.output import Output, memory, read_output
from roles.benchmark.record import Environment, Prediction, Record, proof
from roles.benchmark.report import RESULTS, write_report
from roles.benchmark.rounds import Level, repeats, warm_ups
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


def verify(host: Host, candidate: Candidate, prediction: Prediction | None, level: Level, round_limit: int) -> Record:
    """Measure the server, judge the measurement, keep the record on the host and in `results/`.

    The caller decides what a record that is not `accepted` means.
    """
    facts = benchmark_facts(host)
    record = measure(host, candidate, facts, prediction, level, round_limit)
    earlier = history(host, facts, candidate.profile.name)
    verdict = judge(record, earlier, candidate.profile.benchmark)
    record = record.model_copy(update={"verdict": verdict})
    keep(host, record)
    click.echo(table(record), err=True)
    return record


def measure(
    host: Host,
    candidate: Candidate,
    facts: BenchmarkFacts,
    prediction: Prediction | None,
    level: Level,
    round_limit: int,
) -> Record:
    """Run the rounds on the host, with progress. What went wrong is in the record, too."""
    started = datetime.now(UTC)
    benchmark = candidate.profile.benchmark
    wanted = proof_of(candidate, facts)
    name = f"{candidate.profile.name}-{wanted}-{level}"
    subject = Subject(
        base_url=f"http://127.0.0.1:{candidate.command.port}",
        tokenizer=candidate.weights,
        directory=f"{STATE}/benchmark/{name}",
    )
    planned = File(f"{subject.directory}/plan.json", json.dumps(plan(subject, benchmark, level, round_limit)))
    run(host, f"install -d -o {USER} -g {USER} {shlex.quote(subject.directory)}")
    for file in (PROGRAM, planned):
        for command in write(file):
            run(host, command)
    failure = _run(host, candidate, name, planned.path, _limit(benchmark, level, round_limit))
    output = _fetched(host, subject.output)
    run(host, f"rm -rf {shlex.quote(subject.directory)}")
    return Record(
        host=host.name,
        profile=candidate.profile.name,
        model=candidate.profile.model,
        fingerprint=candidate.command.fingerprint,
        proof=wanted,
        family=facts.family(candidate.profile.name),
        level=level,
        started=started,
        finished=datetime.now(UTC),
        environment=_environment(output, candidate),
        rows=tuple(output.rows),
        failure=failure if output.end is None else None,
        log=output.log,
        memory=memory(output.server),
        prediction=prediction,
        references=references(candidate.profile),
    )


def _run(host: Host, candidate: Candidate, name: str, planned: str, limit: int) -> str | None:
    """Run the measuring program; the reason if it failed."""
    python = str(PurePosixPath(candidate.command.program[0]).with_name("python"))
    command = shlex.join(["exec", "runuser", "-u", USER, "--", python, PROGRAM.path, planned])
    environment = {**candidate.command.environment, **ENVIRONMENT}
    try:
        run_job(host, Job(f"benchmark-{name}", command, environment, limit))
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
    local = RESULTS / record.host.replace("/", "_") / record.name
    local.parent.mkdir(parents=True, exist_ok=True)
    local.write_text(record.to_json(), encoding="utf-8")
    write_report()
    for command in write(File(f"{RECORDS}/{record.name}", record.to_json())):
        run(host, command)
