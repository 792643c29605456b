"""A sweep: which trials there are, what became of each, and how they compare. Pure."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from itertools import product
from statistics import mean
from typing import Final, Literal, Self

from pydantic import AwareDatetime, Field

from roles.benchmark.record import Record
from roles.benchmark.rounds import Level, Mode, Point
from roles.benchmark.statistics import Figure, Ranked, pareto, ranking, restart_noise
from roles.documents import Document
from roles.refusal import Refusal
from roles.serve.command import RESERVED
from roles.serve.profile import Profile
from roles.sglang.catalogue import Catalogue

PARALLELISM: Final = "parallelism"
"""A knob whose values are several of the server's flags at once."""


@dataclass(frozen=True)
class Trial:
    """One profile to try."""

    profile: Profile
    changes: Mapping[str, object]
    """What makes it differ from the base, by knob; empty for the base and for a listed profile."""

    @property
    def name(self) -> str:
        return self.profile.name


def trials(
    base: Profile, vary: Mapping[str, object], listed: Sequence[Profile], mode: Mode, catalogue: Catalogue
) -> list[Trial]:
    """Listed profiles first, then what `vary` makes of the base.

    An ablation tries the base, each change alone, and the first value of every knob together, so that each
    knob's own effect is known. A grid tries every combination. Raises Refusal for a knob that is none, for a
    value that `catalogue` does not know, and for two trials of one name.
    """
    found = [Trial(profile, {}) for profile in listed]
    knobs = {knob: _values(knob, values, catalogue) for knob, values in vary.items()}
    if knobs:
        choices = _ablation(knobs) if mode == "ablation" else _grid(knobs)
        found += [Trial(_varied(base, changes), changes) for changes in choices]
    unique: dict[str, Trial] = {}
    for trial in found:
        unique.setdefault(trial.profile.model_dump_json(exclude={"name", "description"}), trial)
    names = [trial.name for trial in unique.values()]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise Refusal(f"vary: two trials would be called {twice}; write values that differ in letters or digits")
    return list(unique.values())


def _values(knob: str, values: object, catalogue: Catalogue) -> list[object]:
    if not isinstance(values, list) or not values:
        raise Refusal(f"vary: {knob}: takes a list of values, not {values!r}")
    problems = [error for value in values for error in catalogue.check(_flags(knob, value), RESERVED).errors]
    if problems:
        raise Refusal("\n".join(f"vary: {problem}" for problem in dict.fromkeys(problems)))
    return values


def _flags(knob: str, value: object) -> Mapping[str, object]:
    """The server's flags that a value of this knob sets whole."""
    if knob == PARALLELISM:
        return value if isinstance(value, dict) else {}
    block, _, flag = knob.partition(".")
    return {flag: value} if block == "server" and "." not in flag else {}


def _ablation(knobs: Mapping[str, Sequence[object]]) -> Iterator[dict[str, object]]:
    yield {}
    for knob, values in knobs.items():
        for value in values:
            yield {knob: value}
    if len(knobs) > 1:
        yield {knob: values[0] for knob, values in knobs.items()}


def _grid(knobs: Mapping[str, Sequence[object]]) -> Iterator[dict[str, object]]:
    for combination in product(*knobs.values()):
        yield dict(zip(knobs, combination, strict=True))


def _varied(base: Profile, changes: Mapping[str, object]) -> Profile:
    """The base with each knob set. A knob is a key of the profile, such as `server.max_running_requests`."""
    if not changes:
        return base
    values = base.model_dump()
    for knob, value in changes.items():
        _set(values, knob, value)
    suffix = ".".join(_slug(knob, value) for knob, value in changes.items())
    values |= {"name": f"{base.name}.{suffix}", "reference": (), "findings": ()}
    values["description"] = f"{base.name} with " + ", ".join(f"{knob}={value}" for knob, value in changes.items())
    return Profile.read(values, "vary")


def _set(values: dict[str, object], knob: str, value: object) -> None:
    if knob == PARALLELISM:
        if not isinstance(value, dict):
            raise Refusal(f"vary: parallelism: takes flags such as {{tp_size: 8, ep_size: 8}}, not {value!r}")
        for flag, size in value.items():
            _set(values, f"server.{flag}", size)
        return
    *path, leaf = knob.split(".")
    block: object = values
    for part in path:
        block = block.get(part) if isinstance(block, dict) else None
    if not path or not isinstance(block, dict):
        raise Refusal(
            f"vary: {knob}: no key of a profile that can vary; accepted are parallelism, server.<flag>, "
            "environment.<name> and benchmark.<key>"
        )
    block[leaf] = value


def _slug(knob: str, value: object) -> str:
    """A part of a unit's name: letters, digits and `:-_.` only."""
    text = "-".join(f"{k}-{v}" for k, v in value.items()) if isinstance(value, dict) else f"{knob}-{value}"
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text.removeprefix("server.").removeprefix("environment."))


class Entry(Document):
    """What became of a trial."""

    name: str
    changes: dict[str, object] = Field(default_factory=dict)
    status: Literal["waiting", "measured", "failed", "skipped"] = "waiting"
    cause: str = ""
    """Why it failed or was skipped, in one sentence."""
    record: str | None = None
    """Name of its record in results/<host>/."""
    seconds: float = 0
    """How long it took, its switch included."""


class Sweep(Document):
    """results/<host>/sweeps/<key>.json: written after every trial, so that nothing is tried twice."""

    key: str
    """Of the trials and the level: another sweep has another one."""
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
        tried: Sequence[Trial],
        mode: Mode,
        level: Level,
        started: AwareDatetime,
        impossible: Mapping[str, Sequence[str]],
    ) -> Self:
        """A sweep in which nothing has been tried. `impossible` says why profiles cannot be served."""
        base = next((one.name for one in tried if not one.changes and any(c.changes for c in tried)), None)
        return cls(
            key=key(tried, level),
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
    def waiting(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.status == "waiting"]

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


def key(tried: Sequence[Trial], level: Level) -> str:
    """12 hex digits."""
    content = json.dumps([level, *(trial.profile.model_dump(mode="json") for trial in tried)])
    return sha256(content.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Ranking:
    """Trials from best to worst by one objective; equal places are equal within noise."""

    objective: str
    unit: str
    places: Sequence[Ranked]


def rankings(records: Mapping[str, Record]) -> list[Ranking]:
    """By latency of a lone request, by throughput at each concurrency and at its peak, and by goodput."""
    found = []
    for traffic in dict.fromkeys(point.traffic for record in records.values() for point in record.points()):
        for objective, metric, unit, figures in _objectives(records, traffic):
            if figures:
                noise = restart_noise(metric, [])
                places = ranking(figures, noise, highest=unit != "ms")
                found.append(Ranking(f"{traffic}: {objective}", unit, places))
    return found


def _objectives(records: Mapping[str, Record], traffic: str) -> Iterator[tuple[str, str, str, dict[str, Figure]]]:
    """Objective, the client's metric, unit, and each profile's figure."""
    concurrencies = sorted(
        {point.concurrency for record in records.values() for point in record.points() if point.traffic == traffic}
    )
    if 1 in concurrencies:
        metric = "median_e2e_latency_ms"
        yield "latency at C=1", metric, "ms", _at(records, traffic, 1, metric)
    for concurrency in concurrencies:
        metric = "output_throughput"
        yield f"throughput at C={concurrency}", metric, "tok/s", _at(records, traffic, concurrency, metric)
    yield "peak throughput", "output_throughput", "tok/s", _peaks(records, traffic, "output_throughput")
    yield "goodput", "request_goodput", "requests/s", _peaks(records, traffic, "request_goodput")


def _at(records: Mapping[str, Record], traffic: str, concurrency: int, metric: str) -> dict[str, Figure]:
    return {
        name: figure
        for name, record in records.items()
        for point in record.points()
        if (point.traffic, point.concurrency) == (traffic, concurrency)
        and (figure := record.figure(point, metric)) is not None
    }


def _peaks(records: Mapping[str, Record], traffic: str, metric: str) -> dict[str, Figure]:
    found = {}
    for name, record in records.items():
        figures = [record.figure(point, metric) for point in record.points() if point.traffic == traffic]
        known = [figure for figure in figures if figure is not None]
        if known:
            found[name] = max(known, key=lambda figure: figure.median)
    return found


def tradeoff(record: Record, traffic: str) -> list[tuple[float, float, Point]]:
    """For each concurrency: tokens per second for one user, and for all of them together."""
    found = []
    for point in record.points():
        tpot, throughput = record.figure(point, "median_tpot_ms"), record.figure(point, "output_throughput")
        if point.traffic == traffic and tpot and throughput and tpot.median > 0:
            found.append((1000 / tpot.median, throughput.median, point))
    return found


def pareto_set(records: Mapping[str, Record], traffic: str) -> dict[str, list[tuple[float, float]]]:
    """The profiles that nothing beats both for one user and for all, and where."""
    return pareto({name: [(x, y) for x, y, _ in tradeoff(record, traffic)] for name, record in records.items()})
