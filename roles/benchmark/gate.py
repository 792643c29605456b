"""The gate: is this measurement whole, fast enough, and no worse than the last? Pure.

Every judgement says what was measured and what it was held against.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

from roles.benchmark.benchmark import Benchmark, Floor, LatencyLimit
from roles.benchmark.noise import host_noise
from roles.benchmark.record import Judgement, Record, Row, Verdict
from roles.benchmark.rounds import Point
from roles.benchmark.statistics import Figure, drop, noise_band

THROUGHPUT: Final = "output_throughput"
"""The client's name for output tokens per second."""

LATENCY: Final[Mapping[str, str]] = {"ttft": "ttft_ms", "tpot": "tpot_ms", "e2e": "e2e_latency_ms"}
PERCENTILE: Final[Mapping[int, str]] = {50: "median", 95: "p95", 99: "p99"}

BUSY_CLIENT: Final = 0.8
"""From this share of computing on, the client's event loop delays what it measures."""

Outcome = Literal["passed", "failed", "noted"]


def judge(record: Record, history: Sequence[Record], benchmark: Benchmark) -> Verdict:
    """Judge a measurement against the profile's `benchmark:` and against this host's earlier records."""
    if record.failure is not None or not record.points():
        cause = record.failure or "nothing was measured"
        return Verdict(judgements=(Judgement(subject="completeness", point="", outcome="failed", text=cause),))
    earlier = [old for old in history if old.family == record.family and old.started < record.started]
    return Verdict(
        judgements=(
            *_completeness(record),
            *_client(record),
            *_floors(record, benchmark),
            *_latencies(record, benchmark),
            *_goodput(record, benchmark),
            *_regressions(record, earlier, benchmark.tolerance),
            *_notes(record),
        ),
        baseline=next((old.name for old in _newest_first(earlier) if _comparable(record, old)), None),
    )


def _completeness(record: Record) -> Iterator[Judgement]:
    for point in record.points():
        rows = record.judged_rows(point)
        problems = [problem for row in rows for problem in _problems(row)]
        whole = (
            f"{point.requests} of {point.requests} requests of {point.input_tokens} + {point.output_tokens} "
            f"tokens in each of {len(rows)} rounds"
        )
        yield Judgement(
            subject="completeness",
            point=str(point),
            outcome="failed" if problems else "passed",
            text="; ".join(problems) or whole,
            measured=min(row.value("completed") or 0 for row in rows),
            limit=point.requests,
        )


def _problems(row: Row) -> Iterator[str]:
    point, number = row.round.point, row.round.number
    if row.error is not None or row.result is None:
        yield f"round {number}: {row.error or 'the client wrote no result'}"
        return
    for metric, what, wanted in (
        ("completed", "requests", point.requests),
        ("total_input_tokens", "input tokens", point.requests * point.input_tokens),
        ("total_output_tokens", "output tokens", point.requests * point.output_tokens),
    ):
        if (seen := row.value(metric)) != wanted:
            yield f"round {number}: {_count(seen)} of {wanted} {what}"
            return


def _count(value: float | None) -> str:
    return "an unknown number" if value is None else f"{value:.0f}"


def _client(record: Record) -> Iterator[Judgement]:
    clients = [row.client for row in record.rows if row.judged and row.client is not None]
    shares = [client.loop_share for client in clients if client.loop_share is not None]
    if not shares:
        return
    delays = [client.loop_delay_p99_ms for client in clients if client.loop_delay_p99_ms is not None]
    yield Judgement(
        subject="client",
        point="",
        outcome="failed" if max(shares) >= BUSY_CLIENT else "passed",
        text=(
            f"the client's event loop computed for at most {max(shares):.0%} of the time "
            f"(limit {BUSY_CLIENT:.0%}) and woke up {max(delays, default=0):.0f} ms late (p99)"
        ),
        measured=max(shares),
        limit=BUSY_CLIENT,
    )


def _floors(record: Record, benchmark: Benchmark) -> Iterator[Judgement]:
    for floor in benchmark.floors:
        figure = _figure(record, floor, THROUGHPUT)
        limit, origin = _floor_value(record, floor)
        if figure is None or limit is None:
            missing = "it was not measured" if figure is None else origin
            yield _judgement("floor", floor, "failed", f"the floor cannot be judged: {missing}")
            continue
        low, high = figure.interval
        yield _judgement(
            "floor",
            floor,
            "passed" if figure.median >= limit else "failed",
            f"{figure.median:.1f} tok/s (95% interval {low:.1f} to {high:.1f}), floor {limit:.1f}{origin}",
            measured=figure.median,
            limit=limit,
        )


def _floor_value(record: Record, floor: Floor) -> tuple[float | None, str]:
    """The floor in output tokens per second and how it came about, or None and why there is none."""
    if floor.share_of_reference is not None:
        reference = record.references[floor.concurrency]  # a profile without it is refused
        origin = f" ({floor.share_of_reference:.0%} of the reference {reference:.1f})"
        return floor.share_of_reference * reference, origin
    if floor.share_of_ceiling is not None:
        ceiling = record.ceiling(floor.traffic, floor.concurrency)
        if ceiling is None:
            return None, f"no ceiling is known at concurrency {floor.concurrency}"
        return floor.share_of_ceiling * ceiling, f" ({floor.share_of_ceiling:.0%} of the ceiling {ceiling:.1f})"
    return floor.tokens_per_second, ""


def _latencies(record: Record, benchmark: Benchmark) -> Iterator[Judgement]:
    for limit in benchmark.latency_limits:
        figure = _figure(record, limit, f"{PERCENTILE[limit.percentile]}_{LATENCY[limit.metric]}")
        if figure is None:
            yield _judgement("latency", limit, "failed", "the limit cannot be judged: it was not measured")
            continue
        yield _judgement(
            "latency",
            limit,
            "passed" if figure.median <= limit.milliseconds else "failed",
            f"{limit.metric.upper()} p{limit.percentile} {figure.median:.1f} ms, limit {limit.milliseconds:.1f} ms",
            measured=figure.median,
            limit=limit.milliseconds,
        )


def _goodput(record: Record, benchmark: Benchmark) -> Iterator[Judgement]:
    if benchmark.goodput is None:
        return
    share = benchmark.goodput.share
    for point in record.points():
        figure = record.figure(point, "slo_attainment")
        if figure is None:
            outcome: Outcome = "failed" if share is not None else "noted"
            yield _judgement("goodput", point, outcome, "the client did not report how many requests were good")
            continue
        passed = share is None or figure.median >= share
        asked = "" if share is None else f", {share:.0%} asked for"
        yield _judgement(
            "goodput",
            point,
            "noted" if share is None else "passed" if passed else "failed",
            f"{figure.median:.0%} of the requests met the objective{asked}",
            measured=figure.median,
            limit=share,
        )


def _regressions(record: Record, earlier: Sequence[Record], tolerance: float) -> Iterator[Judgement]:
    baselines = {point: _baseline(point, earlier) for point in record.points()}
    compared = sum(baseline is not None for baseline in baselines.values())
    if not compared:
        yield Judgement(
            subject="regression",
            point="",
            outcome="noted",
            text="no earlier accepted record of the same family: this one, if accepted, is the baseline",
        )
    for point, baseline in baselines.items():
        after = record.figure(point, THROUGHPUT)
        if baseline is None or after is None:
            continue
        noise = host_noise(earlier, THROUGHPUT, [point])
        yield _regression(point, baseline, after, tolerance, noise_band(baseline, after, noise, compared))


def _regression(point: Point, before: Figure, after: Figure, tolerance: float, band: float) -> Judgement:
    lost = drop(before, after)
    change = f"{lost:.1%} less" if lost > 0 else f"{-lost:.1%} more"
    return Judgement(
        subject="regression",
        point=str(point),
        outcome="failed" if lost > max(tolerance, band) else "passed",
        text=(
            f"{after.median:.1f} tok/s, {change} than the last accepted {before.median:.1f}; "
            f"a drop of {max(tolerance, band):.1%} would fail (tolerance {tolerance:.1%}, noise {band:.1%})"
        ),
        measured=after.median,
        limit=before.median * (1 - max(tolerance, band)),
        noise_band=band,
    )


def _newest_first(records: Sequence[Record]) -> list[Record]:
    return sorted((record for record in records if record.accepted), key=lambda r: r.started, reverse=True)


def _comparable(record: Record, old: Record) -> bool:
    return not set(record.points()).isdisjoint(old.points())


def _baseline(point: Point, earlier: Sequence[Record]) -> Figure | None:
    """The figure of the last accepted record that measured this point."""
    figures = (old.figure(point, THROUGHPUT) for old in _newest_first(earlier))
    return next((figure for figure in figures if figure is not None), None)


def _notes(record: Record) -> Iterator[Judgement]:
    for traffic in dict.fromkeys(row.round.point.traffic for row in record.rows if not row.judged):
        yield from _warm_up(record, traffic)
    cached = [row.cached_tokens or 0 for row in record.rows if row.judged]
    asked = sum(row.value("total_input_tokens") or 0 for row in record.rows if row.judged)
    if sum(cached):
        text = f"the prefix cache answered {sum(cached)} of {asked:.0f} prompt tokens"
        yield Judgement(subject="cache", point="", outcome="noted", text=text, measured=sum(cached), limit=0)
    throttled: dict[str, float] = {}
    for gpu in (gpu for row in record.rows if row.judged for gpu in row.gpus):
        for reason, share in gpu.throttled.items():
            throttled[reason] = max(share, throttled.get(reason, 0))
    for reason, share in throttled.items():
        text = f"a GPU was throttled ({reason}) in up to {share:.0%} of a round"
        yield Judgement(subject="throttling", point="", outcome="noted", text=text, measured=share)


def _warm_up(record: Record, traffic: str) -> Iterator[Judgement]:
    rows = [row for row in record.rows if row.round.phase == "warm-up" and row.round.point.traffic == traffic]
    rates = [rate for row in rows if (rate := row.value(THROUGHPUT)) is not None]
    if len(rates) > 1:
        shown = ", ".join(f"{rate:.1f}" for rate in rates)
        apart = abs(rates[-1] - rates[-2]) / max(rates[-2:])
        text = f"rounds of {shown} tok/s; the last two differ by {apart:.1%}"
        yield Judgement(subject="warm-up", point=traffic, outcome="noted", text=text, measured=apart)


def _figure(record: Record, entry: Floor | LatencyLimit, metric: str) -> Figure | None:
    for point in record.points():
        if (point.traffic, point.concurrency) == (entry.traffic, entry.concurrency):
            return record.figure(point, metric)
    return None


def _judgement(
    subject: Literal["floor", "latency", "goodput"],
    about: Floor | LatencyLimit | Point,
    outcome: Outcome,
    text: str,
    measured: float | None = None,
    limit: float | None = None,
) -> Judgement:
    point = f"{about.traffic} C={about.concurrency}"
    return Judgement(subject=subject, point=point, outcome=outcome, text=text, measured=measured, limit=limit)
