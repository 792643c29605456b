"""What a host could serve, and what a deploy would change on it. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Self

from roles.benchmark.gate import THROUGHPUT
from roles.benchmark.record import Record
from roles.preflight.exchange import SECONDS as EXCHANGE_SECONDS
from roles.preflight.hardware import Hardware
from roles.refusal import Refusal
from roles.serve.candidate import Candidate, is_current, leaving, runs_as_declared
from roles.serve.ceiling import Load, decode_ceiling
from roles.serve.exact import Answer
from roles.serve.memory import Estimate, estimate
from roles.serve.parallelism import Parallelism, on_cpu
from roles.serve.profile import Profile
from roles.serve.unit import UnitState
from roles.serve.weights_per_rank import checkpoint_bytes
from roles.weights.model import Model

START_SECONDS: Final = 45
"""Python, SGLang's imports and the ranks' meeting: 36 to 48 s measured on an idle 16-core host."""

DISK_RATE: Final = 1e9
"""Bytes per second: half of what one NVMe drive gives."""

GRAPH_SECONDS: Final = 208
"""Capturing CUDA graphs, as reported for eight RTX PRO 6000."""

STOP_SECONDS: Final = 7
"""4 to 7 s measured from SIGTERM to the end of an idle server; running requests come on top."""


class Measured(NamedTuple):
    """The best throughput of a profile's last benchmark on this host."""

    tokens_per_second: float
    concurrency: int
    traffic: str
    accepted: bool
    share_of_ceiling: float | None
    """Of the ceiling at the same concurrency and traffic."""


class Exact(NamedTuple):
    """What SGLang's own code says of a profile. Bytes, for the rank that has most."""

    refusal: str
    """Why SGLang would not start, in its own words; empty if it would."""
    weights: int
    kv_bytes_per_token: int

    @classmethod
    def of(cls, ranks: Iterable[Answer]) -> Self:
        """From the answers about a profile's ranks, one at least."""
        ranks = list(ranks)
        return cls(
            refusal=next((rank.refusal for rank in ranks if rank.refusal), ""),
            weights=max(rank.weights for rank in ranks),
            kv_bytes_per_token=max(rank.kv_bytes_per_token for rank in ranks),
        )


class Row(NamedTuple):
    """One profile on one host. Memory is per GPU, for the rank that has most."""

    profile: str
    description: str
    reasons: tuple[str, ...]
    """Why the host cannot serve it; empty if it can."""
    gpus: int
    memory: Estimate | None
    """None for the CPU, and where the GPUs' memory is not known or the parallel sizes cannot be."""
    requests_at_context: float | None
    """How many requests of the profile's full context length the KV cache holds."""
    single_ceiling: float | None
    """Output tokens per second that one request cannot exceed."""
    full_ceiling: float | None
    """Output tokens per second, over all requests, that a full server cannot exceed."""
    full_requests: int | None
    """Requests in flight in a full server: as many as it runs at once and its KV cache holds."""
    load_seconds: float
    """From start to ready: measured at the last start, else estimated."""
    measured: Measured | None
    exact: Exact | None = None
    """None where it was not asked for, or nobody could answer."""


class Choice(NamedTuple):
    """What a deploy would do for the wanted profiles."""

    profiles: tuple[str, ...]
    refusals: tuple[str, ...]
    """Why a deploy would refuse them; empty if it would not."""
    warnings: tuple[str, ...]
    changes: tuple[str, ...] | None
    """What it would change, in its order; None where the host cannot be asked or the choice is refused."""
    downtime_seconds: float | None
    """How long nothing would be served; 0 where nothing is served now, or nothing changes."""
    exchange_seconds: float = 0
    """What comes on top at most, while GPUs exchange values between the servers; 0 where they have before."""


class Plan(NamedTuple):
    """One host."""

    host: str
    hardware: Hardware | None
    unreachable: str | None
    """Why the host cannot be asked; None if it was."""
    rows: tuple[Row, ...]
    choice: Choice
    inexact: str | None = None
    """Why the exact answers that were asked for are not there."""


class Live(NamedTuple):
    """What a host that can be asked has."""

    release: bool
    """Whether the release is installed."""
    weights: frozenset[str]
    """Directories that hold a complete model."""
    units: Mapping[str, UnitState]
    accepted: Mapping[str, str]
    """Fingerprint by profile of what was accepted last."""
    stale_files: Sequence[str]
    """Paths of files that are not as they would be written."""
    gone: Sequence[str]
    """Units of profiles that are no longer declared."""
    untried: frozenset[str] = frozenset()
    """Profiles whose GPUs have not exchanged values yet under their conditions."""


def row(
    profile: Profile,
    model: Model,
    draft: Model | None,
    hardware: Hardware | None,
    reasons: Sequence[str],
    records: Sequence[Record],
) -> Row:
    """What is known of `profile`; `records` are its own on this host, the oldest first."""
    known = _estimate(profile, model, draft, hardware)
    groups = 1 if known is None else _groups(profile)
    full = None if known is None else _full_load(profile, known, groups)
    last = records[-1] if records else None
    started = [record.startup_seconds for record in records if record.startup_seconds is not None]
    return Row(
        profile=profile.name,
        description=profile.description,
        reasons=tuple(reasons),
        gpus=_gpus(profile),
        memory=known,
        requests_at_context=None if known is None else known.requests_at_context * groups,
        single_ceiling=_ceiling(profile, model, hardware, Load(1, _context(profile)), known),
        full_ceiling=None if full is None else _ceiling(profile, model, hardware, full, known),
        full_requests=None if full is None else int(full.requests),
        load_seconds=started[-1] if started else _load_seconds(profile, model, draft),
        measured=None if last is None else best(last),
    )


def best(record: Record) -> Measured | None:
    """The point of a record with the highest throughput; None if nothing was measured."""
    figures = {point: record.figure(point, THROUGHPUT) for point in record.points()}
    medians = {point: figure.median for point, figure in figures.items() if figure is not None}
    if not medians:
        return None
    point = max(medians, key=lambda one: medians[one])
    ceiling = record.ceiling(point.traffic, point.concurrency)
    return Measured(
        tokens_per_second=medians[point],
        concurrency=point.concurrency,
        traffic=point.traffic,
        accepted=record.accepted,
        share_of_ceiling=medians[point] / ceiling if ceiling else None,
    )


def changes(
    candidates: Sequence[Candidate], release: str, models: Mapping[str, Model], live: Live
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a deploy would change, one sentence each; and the units that it would stop or restart.

    `release` is the release's name; `models` are those of the wanted profiles by their directory on the host.
    """
    found = []
    if not live.release:
        found.append(f"install the release {release}")
    for directory, model in models.items():
        if directory not in live.weights:
            verb = "make" if model.source.generate else "download"
            found.append(f"{verb} the model {model.name} ({checkpoint_bytes(model) / 1e9:,.1f} GB)")
    if live.stale_files:
        found.append(f"write {_counted(len(live.stale_files), 'unit or program', 'units and programs')}")
    if live.gone:
        found.append(f"remove {', '.join(live.gone)}")
    stopping = leaving(candidates, live.units)
    found += [f"stop {unit}" for unit in stopping if unit not in {one.unit_name for one in candidates}]
    for candidate in candidates:
        if not runs_as_declared(candidate, live.units):
            found.append(f"{'restart' if candidate.unit_name in stopping else 'start'} {candidate.unit_name}")
    if not is_current(candidates, live.units, live.accepted):
        found.append("measure the served profile unless a record proves it, and keep it for the next boot")
    return tuple(found), tuple(stopping)


def downtime(candidates: Iterable[Candidate], stopping: Sequence[str], rows: Mapping[str, Row], live: Live) -> float:
    """Seconds in which nothing is served: a stop, and the longest load of what has to be started."""
    if not stopping:
        return 0
    loads = [rows[one.profile.name].load_seconds for one in candidates if not runs_as_declared(one, live.units)]
    return STOP_SECONDS + max(loads, default=0)


def exchange(candidates: Iterable[Candidate], stopping: Sequence[str], live: Live) -> float:
    """Seconds that the GPUs of what has to be started may exchange values for, once what stops has left them."""
    if not stopping:
        return 0
    new = [one for one in candidates if not runs_as_declared(one, live.units)]
    return EXCHANGE_SECONDS * sum(one.profile.name in live.untried for one in new)


def _estimate(profile: Profile, model: Model, draft: Model | None, hardware: Hardware | None) -> Estimate | None:
    if hardware is None or not hardware.gpus or not hardware.memory_mib or on_cpu(profile):
        return None
    try:
        return estimate(model, profile, hardware, draft)
    except Refusal:  # one of the profile's `reasons`
        return None


def _gpus(profile: Profile) -> int:
    try:
        return 0 if on_cpu(profile) else Parallelism.of(profile.server).gpus
    except Refusal:  # one of the profile's `reasons`
        return 0


def _groups(profile: Profile) -> int:
    """How many KV caches the server has: one for each replica and attention group."""
    parallelism = Parallelism.of(profile.server)
    return parallelism.dp * parallelism.attn_dp


def _context(profile: Profile) -> float:
    """Tokens in the KV cache in the middle of a request of the profile's first traffic."""
    traffic = next(iter(profile.benchmark.traffic.values()))
    return traffic.input_tokens + traffic.output_tokens / 2


def _full_load(profile: Profile, known: Estimate, groups: int) -> Load | None:
    """As many requests of the profile's first traffic as run at once and as the KV cache holds; None if not one."""
    traffic = next(iter(profile.benchmark.traffic.values()))
    held = known.tokens * groups // (traffic.input_tokens + traffic.output_tokens)
    requests = min(known.max_running_requests * groups, held)
    return Load(requests, _context(profile)) if requests else None


def _ceiling(
    profile: Profile, model: Model, hardware: Hardware | None, load: Load, known: Estimate | None
) -> float | None:
    return None if hardware is None or known is None else decode_ceiling(profile, model, hardware, load)


def _load_seconds(profile: Profile, model: Model, draft: Model | None) -> float:
    size = checkpoint_bytes(model) + (checkpoint_bytes(draft) if draft else 0)
    return START_SECONDS + size / DISK_RATE + (0 if on_cpu(profile) else GRAPH_SECONDS)


def _counted(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"
