"""A benchmark record: everything that one measurement saw, as one JSON document. Pure. See docs/records.md."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC
from typing import Final, Literal, NoReturn, Self

from pydantic import AwareDatetime, Field, FiniteFloat, JsonValue

from roles.benchmark.name import Name
from roles.benchmark.rounds import Level, Point, Round
from roles.benchmark.statistics import Figure
from roles.documents import Document
from roles.refusal import Refusal

SCHEMA_VERSION: Final = 1

Migration = Callable[[dict[str, object]], dict[str, object]]

MIGRATIONS: Final[Mapping[int, Migration]] = {}
"""From a schema version to the next one: what makes a record of an old Slipway readable for ever."""


class Client(Document):
    """How busy the client itself was, over the time that its row measures."""

    mode: Literal["python", "rust"]
    loop_share: FiniteFloat | None = None
    """Share of the time that its event loop was computing; at 1 it is the bottleneck. Null in Rust mode."""
    loop_delay_p99_ms: FiniteFloat | None = None
    """How much later than asked for the event loop woke up. Null in Rust mode."""
    cpu_share: FiniteFloat
    """CPU time over elapsed time, all its threads: 1 is one core."""


class Gpu(Document):
    """One GPU during a round, from samples of nvidia-smi."""

    index: int
    samples: int
    sm_clock_mhz: FiniteFloat | None = None
    """Median."""
    memory_clock_mhz: FiniteFloat | None = None
    """Median."""
    power_w: FiniteFloat | None = None
    """Median."""
    temperature_c: FiniteFloat | None = None
    """Highest."""
    utilization_percent: FiniteFloat | None = None
    """Median."""
    memory_used_mib: FiniteFloat | None = None
    """Highest."""
    throttled: dict[str, FiniteFloat] = Field(default_factory=dict)
    """Share of the samples by reason, as NVML names it; idle is none."""


class Row(Document):
    """One round: what was asked, and what came of it."""

    round: Round
    started: AwareDatetime
    seconds: FiniteFloat = Field(ge=0)
    """The whole round, its preparation included."""
    judged: bool
    """False for the warm-up, and for a round taken again because the client was the bottleneck."""
    error: str | None = None
    """Why there is no result."""
    result: dict[str, JsonValue] | None = None
    """The client's own row, but for `server_info`; null for what it wrote as Infinity or NaN."""
    client: Client | None = None
    gpus: tuple[Gpu, ...] = ()

    def value(self, metric: str) -> float | None:
        """A number of the client's row; None if it is not there."""
        number = (self.result or {}).get(metric)
        return float(number) if isinstance(number, int | float) and not isinstance(number, bool) else None

    @property
    def cached_tokens(self) -> int | None:
        """Prompt tokens that the prefix cache answered; None where the client does not report them."""
        report = (self.result or {}).get("cache_report")
        cached = report.get("total_cached_tokens") if isinstance(report, dict) else None
        return cached if isinstance(cached, int) else None


class Environment(Document):
    """What was measured, and on what."""

    machine: dict[str, str] = Field(default_factory=dict)
    """Operating system, kernel, CPU, cores, memory."""
    gpus: tuple[dict[str, str], ...] = ()
    """For each GPU what nvidia-smi says of it: name, driver, memory, power limit, clocks, PCIe link."""
    topology: str = ""
    """`nvidia-smi topo -m`."""
    packages: dict[str, str] = Field(default_factory=dict)
    """Versions of the release's packages that decide speed."""
    release: str = ""
    command: tuple[str, ...] = ()
    """The server's command line, secrets replaced."""
    variables: dict[str, str] = Field(default_factory=dict)
    """The server's environment as its profile declares it, secrets replaced."""
    server: dict[str, JsonValue] = Field(default_factory=dict)
    """What the server says of itself (`/server_info`), secrets replaced."""


class Ceiling(Document):
    """What the hardware could reach at one point."""

    traffic: str
    concurrency: int
    output_tokens_per_second: FiniteFloat


class Prediction(Document):
    """What was expected before the server was started."""

    memory: dict[str, FiniteFloat] = Field(default_factory=dict)
    """By the names of `Record.memory`."""
    ceilings: tuple[Ceiling, ...] = ()


class Judgement(Document):
    """One thing that was judged, with the numbers that were used."""

    subject: Literal[
        "completeness", "client", "floor", "latency", "goodput", "regression", "warm-up", "cache", "throttling"
    ]
    point: str
    """E.g. `chat C=8`; empty for the whole measurement."""
    outcome: Literal["passed", "failed", "noted"]
    """What is noted can be read, and fails nothing."""
    text: str
    measured: FiniteFloat | None = None
    limit: FiniteFloat | None = None
    noise_band: FiniteFloat | None = None
    """A share, where one was used."""


class Verdict(Document):
    judgements: tuple[Judgement, ...]
    baseline: str | None = None
    """Id of the record that was compared with; null for a host's first."""

    @property
    def accepted(self) -> bool:
        return not self.failures

    @property
    def failures(self) -> list[Judgement]:
        return [judgement for judgement in self.judgements if judgement.outcome == "failed"]


class Record(Document):
    """results/<host>/<name>.json, and the same on the host."""

    schema_version: Literal[1] = SCHEMA_VERSION
    host: str
    profile: str
    model: str
    fingerprint: str
    """Of the server: command line, environment and release."""
    proof: str
    """Of what an accepted record proves; see `proof`."""
    family: str
    """Records of one family can be compared with each other, whatever was tuned between them."""
    level: Level
    started: AwareDatetime
    finished: AwareDatetime
    environment: Environment = Field(default_factory=Environment)
    rows: tuple[Row, ...] = ()
    failure: str | None = None
    """Why the server could not be measured: the cause, in one sentence."""
    log: tuple[str, ...] = ()
    """The last lines of the server's or the client's log, where there was a failure."""
    memory: dict[str, FiniteFloat] = Field(default_factory=dict)
    """Per GPU, as the server reports it, of the rank that has most: GiB, and tokens of the KV cache.

    Weights are without those of a draft model.
    """
    prediction: Prediction | None = None
    references: dict[int, FiniteFloat] = Field(default_factory=dict)
    """The profile's reference results: output tokens per second by concurrency."""
    startup_seconds: FiniteFloat | None = None
    """From the server's start to its first answer."""
    verdict: Verdict | None = None

    @classmethod
    def read_json(cls, text: str, source: str) -> Self:
        """A record of any schema version up to this one. Raises Refusal, in one sentence, for all else."""
        try:
            document = json.loads(text, parse_constant=_no_number)
        except ValueError as error:
            raise Refusal(f"{source}: not a whole benchmark record: {error}") from None
        if not isinstance(document, dict):
            raise Refusal(f"{source}: not a benchmark record: a {type(document).__name__}, not an object")
        try:
            return cls.read(migrated(document, source), source)
        except Refusal as refusal:
            raise Refusal(str(refusal).partition("\n")[0]) from None

    def to_json(self) -> str:
        return self.model_dump_json(indent=1) + "\n"

    @property
    def accepted(self) -> bool:
        return self.failure is None and self.verdict is not None and self.verdict.accepted

    @property
    def name(self) -> str:
        """The file's name: all that is needed to know whether something has been proven."""
        outcome: Literal["accepted", "failed"] = "accepted" if self.accepted else "failed"
        return str(Name(self.started.astimezone(UTC), self.profile, self.proof, self.level, outcome))

    def points(self) -> list[Point]:
        """The points that were judged, in the order of their first row."""
        return list(dict.fromkeys(row.round.point for row in self.rows if row.judged))

    def ceiling(self, traffic: str, concurrency: int) -> float | None:
        """What the hardware could reach, in output tokens per second."""
        for ceiling in self.prediction.ceilings if self.prediction else ():
            if (ceiling.traffic, ceiling.concurrency) == (traffic, concurrency):
                return ceiling.output_tokens_per_second
        return None

    def judged_rows(self, point: Point) -> list[Row]:
        return [row for row in self.rows if row.judged and row.round.point == point]

    def figure(self, point: Point, metric: str) -> Figure | None:
        """The repeats of one of the client's numbers at a point; None if a repeat lacks it."""
        values = [row.value(metric) for row in self.judged_rows(point)]
        known = tuple(value for value in values if value is not None)
        return Figure(known) if known and len(known) == len(values) else None


def migrated(
    document: dict[str, object], source: str, migrations: Mapping[int, Migration] = MIGRATIONS
) -> dict[str, object]:
    """`document` in the newest schema version that `migrations` lead to. Raises Refusal if it is a newer one."""
    newest = max(migrations, default=SCHEMA_VERSION - 1) + 1
    version = document.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= newest:
        raise Refusal(
            f"{source}: schema_version: this Slipway reads benchmark records of version 1 to {newest}, "
            f"not {version!r}"
        )
    for step in range(version, newest):
        document = migrations[step](document)
    return document


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")
