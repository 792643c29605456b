"""Records: how one begins, and how it is kept on the host and on the controller."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import PurePosixPath

from pydantic import JsonValue
from pyinfra.api.host import Host

from roles.benchmark.facts import BenchmarkFacts, benchmark_facts
from roles.benchmark.gate import judge
from roles.benchmark.program import without_secrets
from roles.benchmark.proof import proof_of, references
from roles.benchmark.record import Environment, Record
from roles.benchmark.results import RESULTS, folder, write_whole
from roles.benchmark.settings import BenchmarkSettings
from roles.files import File, write
from roles.paths import RECORDS
from roles.remote import run
from roles.serve.candidate import Candidate


def begun(
    host: Host, candidate: Candidate, facts: BenchmarkFacts, settings: BenchmarkSettings, started: datetime
) -> Record:
    """A record in which nothing has been measured yet."""
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
        environment=environment(candidate, {}),
        references=references(profile),
    )


def environment(candidate: Candidate, seen: Mapping[str, JsonValue]) -> Environment:
    """What the measuring program saw, and what the candidate was to be."""
    command = candidate.command
    known = {
        "release": PurePosixPath(command.program[0]).parent.parent.name,
        "command": command.argv,
        "variables": without_secrets(dict(command.environment)),
    }
    return Environment.read({**seen, **known}, "output of the benchmark")


def keep(host: Host, record: Record) -> None:
    """Write the record to `results/<host>/` and to the host. Neither is ever overwritten or removed."""
    write_whole(RESULTS / folder(record.host) / record.name, record.to_json())
    for command in write(File(f"{RECORDS}/{record.name}", record.to_json())):
        run(host, command)
    from roles.benchmark.report import write_report  # here, because drawing takes a second to import

    write_report()


def keep_failure(host: Host, candidate: Candidate, started: datetime, text: str) -> Record:
    """Keep the record of a server that did not get as far as to be measured.

    `text` says in its first two lines what failed and why; the lines after them are the end of its log.
    """
    cause, log = cause_and_log(text)
    record = begun(host, candidate, benchmark_facts(host), BenchmarkSettings.of(host), started)
    record = record.model_copy(update={"failure": cause, "log": log})
    record = record.model_copy(update={"verdict": judge(record, [], candidate.profile.benchmark)})
    keep(host, record)
    return record


def cause_and_log(text: str) -> tuple[str, tuple[str, ...]]:
    """The first two lines as one sentence, and the others."""
    lines = text.strip().splitlines()
    return ": ".join(line.strip().rstrip(":") for line in lines[:2]) or "unknown", tuple(lines[2:])
