"""A sweep: what has become of each of its trials. Pure."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, timedelta
from hashlib import sha256
from statistics import mean
from typing import Literal, Self

from pydantic import AwareDatetime, Field

from roles.benchmark.record import Record
from roles.benchmark.rounds import Level, Mode
from roles.benchmark.trials import Trial
from roles.documents import Document
from roles.refusal import Refusal


class Entry(Document):
    """What became of a trial."""

    name: str
    changes: dict[str, object] = Field(default_factory=dict)
    status: Literal["waiting", "measured", "failed", "skipped"] = "waiting"
    cause: str = ""
    """Why it failed or was skipped, or what the gate has against its figures."""
    record: str | None = None
    """Name of its record in results/<host>/."""
    seconds: float = 0
    """How long it took, its switch included."""


class Sweep(Document):
    """results/<host>/sweeps/<started>.<key>.json: written after every trial, so that nothing is tried twice."""

    key: str
    """Of what it would prove: another sweep has another one."""
    host: str
    base: str | None
    """The profile that the changes are changes of."""
    mode: Mode
    level: Level
    started: AwareDatetime
    entries: tuple[Entry, ...]

    @classmethod
    def planned(
        cls,
        host: str,
        key: str,
        tried: Sequence[Trial],
        mode: Mode,
        level: Level,
        started: AwareDatetime,
        impossible: Mapping[str, Sequence[str]],
    ) -> Self:
        """A sweep in which nothing has been tried. `impossible` says why profiles cannot be served."""
        base = next((one.name for one in tried if not one.changes and any(c.changes for c in tried)), None)
        return cls(
            key=key,
            host=host,
            base=base,
            mode=mode,
            level=level,
            started=started,
            entries=tuple(_entry(trial, impossible.get(trial.name, ())) for trial in tried),
        )

    @classmethod
    def read_json(cls, text: str, source: str) -> Self:
        """Raises Refusal for what is no whole sweep."""
        try:
            document = json.loads(text)
        except ValueError as error:
            raise Refusal(f"{source}: not a whole sweep: {error}") from None
        if not isinstance(document, dict):
            raise Refusal(f"{source}: not a sweep: a {type(document).__name__}, not an object")
        return cls.read(document, source)

    @property
    def name(self) -> str:
        """The file's name, which sorts by time."""
        return f"{self.started.astimezone(UTC):%Y%m%dT%H%M%SZ}.{self.key}.json"

    @property
    def waiting(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.status == "waiting"]

    def measured(self, records: Sequence[Record]) -> dict[str, Record]:
        """Of a host's records those of the trials that were measured, by the trial's name."""
        by_name = {record.name: record for record in records}
        return {
            entry.name: by_name[entry.record]
            for entry in self.entries
            if entry.status == "measured" and entry.record in by_name
        }

    def with_entry(self, changed: Entry) -> Self:
        entries = tuple(changed if entry.name == changed.name else entry for entry in self.entries)
        return self.model_copy(update={"entries": entries})

    def time_left(self) -> timedelta | None:
        """From what the tried ones took on average; None before the first."""
        taken = [entry.seconds for entry in self.entries if entry.seconds]
        return timedelta(seconds=mean(taken) * len(self.waiting)) if taken else None

    def progress(self, entry: Entry) -> str:
        """E.g. `trial 3 of 7, tiny-tp2, about 0:04:10 left`."""
        place = [one.name for one in self.entries].index(entry.name) + 1
        left = self.time_left()
        about = "" if left is None else f", about {timedelta(seconds=round(left.total_seconds()))} left"
        return f"trial {place} of {len(self.entries)}, {entry.name}{about}"


def _entry(trial: Trial, reasons: Sequence[str]) -> Entry:
    status: Literal["waiting", "skipped"] = "skipped" if reasons else "waiting"
    return Entry(name=trial.name, changes=dict(trial.changes), status=status, cause="; ".join(reasons))


def sweep_key(tried: Sequence[Trial], proofs: Mapping[str, str], level: Level) -> str:
    """12 hex digits of what a sweep is about: `proofs` says by trial what a record of it would prove."""
    content = [level, *([trial.name, dict(trial.changes), proofs.get(trial.name)] for trial in tried)]
    return sha256(json.dumps(content, default=str).encode()).hexdigest()[:12]


def what_came_of(record: Record) -> tuple[Literal["measured", "failed"], str]:
    """The status of a trial, and what the gate has against its record.

    A server that does not answer every request in full has failed, however fast it was.
    """
    failures = record.verdict.failures if record.verdict else []
    causes = [f"{failure.subject} {failure.point}: {failure.text}" for failure in failures]
    broken = record.failure is not None or any(failure.subject == "completeness" for failure in failures)
    return "failed" if broken else "measured", record.failure or "; ".join(causes)
