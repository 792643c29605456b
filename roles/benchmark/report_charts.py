"""What is drawn of a host's records, each chart with its numbers. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from roles.benchmark import charts
from roles.benchmark.comparison import Tradeoff, pareto_set, tradeoffs
from roles.benchmark.gate import LATENCY, PERCENTILE, THROUGHPUT
from roles.benchmark.noise import host_noise
from roles.benchmark.record import Record
from roles.benchmark.rounds import Point
from roles.benchmark.statistics import Figure, Interval, compared
from roles.benchmark.sweep import Sweep


class Chart(NamedTuple):
    """An image, what it shows in words, and its numbers for those who cannot see it."""

    title: str
    text: str
    svg: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def _at(record: Record, traffic: str) -> list[Point]:
    return sorted((p for p in record.points() if p.traffic == traffic), key=lambda point: point.concurrency)


def throughput(records: Mapping[str, Record], traffic: str) -> Chart:
    series: dict[str, list[charts.Dot]] = {}
    rows: list[list[str]] = []
    for name, record in records.items():
        for point in _at(record, traffic):
            if (figure := record.figure(point, THROUGHPUT)) is None:
                continue
            series.setdefault(name, []).append(charts.Dot(point.concurrency, figure.median, figure.interval))
            reference = record.references.get(point.concurrency)
            ceiling = record.ceiling(traffic, point.concurrency)
            rows.append([name, str(point.concurrency), *_with_interval(figure), _shown(reference), _shown(ceiling)])
    return Chart(
        title=f"Throughput, {traffic}",
        text="Output tokens per second of all requests together over their number at once; bars are 95% intervals, "
        "dashes are reference results from elsewhere, dots are what the hardware could reach at most.",
        svg=charts.curves(series, _lines(records, traffic), "concurrent requests", "output tokens/s"),
        header=["profile", "C", "tok/s", "95% interval", "reference", "ceiling"],
        rows=rows,
    )


def _lines(records: Mapping[str, Record], traffic: str) -> Iterable[charts.Line]:
    """Reference results and ceilings; what several profiles share is one line, in the colour of the first."""
    known: dict[tuple[str, tuple[tuple[float, float], ...]], list[int]] = {}
    for number, record in enumerate(records.values()):
        points = _at(record, traffic)
        for kind, values in (
            ("reference", [record.references.get(point.concurrency) for point in points]),
            ("ceiling", [record.ceiling(traffic, point.concurrency) for point in points]),
        ):
            dots = [(float(p.concurrency), value) for p, value in zip(points, values, strict=True) if value]
            known.setdefault((kind, tuple(dots)), []).append(number)
    for (kind, shown), numbers in known.items():
        label = kind if len(numbers) == len(records) else f"{list(records)[numbers[0]]} {kind}"
        if shown:
            yield charts.Line(label, shown, numbers[0], _DASHES[kind])


_DASHES: Final = {"reference": "--", "ceiling": ":"}


def latency(records: Mapping[str, Record], traffic: str) -> Iterable[Chart]:
    for metric, title in (("ttft", "Time to first token"), ("tpot", "Time per output token")):
        series: dict[str, dict[float, tuple[float, float, float]]] = {}
        rows = []
        for name, record in records.items():
            for point in _at(record, traffic):
                figures = [record.figure(point, f"{word}_{LATENCY[metric]}") for word in PERCENTILE.values()]
                values = [figure.median for figure in figures if figure is not None]
                if len(values) == len(PERCENTILE):
                    series.setdefault(name, {})[point.concurrency] = (values[0], values[1], values[2])
                    rows.append([name, str(point.concurrency), *map(_shown, values)])
        if rows:
            yield Chart(
                title=f"{title}, {traffic}",
                text=f"{metric.upper()} in milliseconds: the median as a line, p95 dashed and p99 dotted above it.",
                svg=charts.percentiles(series, "concurrent requests", f"{metric.upper()} in ms"),
                header=["profile", "C", "p50 ms", "p95 ms", "p99 ms"],
                rows=rows,
            )


def pareto(records: Mapping[str, Record], known: Sequence[Record], traffic: str) -> Chart:
    """Speed for one user against throughput for all. `known`: all records of the host, which show its noise."""
    best = pareto_set(records, known, traffic)
    series = {name: tradeoffs(record, traffic) for name, record in records.items()}
    rows = [
        [
            name,
            str(one.point.concurrency),
            _shown(one.speed.median),
            _shown(one.throughput.median),
            "yes" if one in best.get(name, ()) else "no",
        ]
        for name, places in series.items()
        for one in places
    ]
    return Chart(
        title=f"One user against all, {traffic}",
        text="Filled points are the Pareto set: nothing that was measured here is better, beyond noise, for one user "
        "or for all together without being worse for the other.",
        svg=charts.tradeoffs(
            {
                name: [_spot(one, one in best.get(name, ())) for one in places]
                for name, places in series.items()
                if places
            }
        ),
        header=["profile", "C", "tok/s for one user", "tok/s for all", "Pareto set"],
        rows=rows,
    )


def _spot(one: Tradeoff, best: bool) -> charts.Spot:
    return charts.Spot(one.speed.median, one.throughput.median, f"C={one.point.concurrency}", best)


def ablation(sweep: Sweep, known: Sequence[Record]) -> Iterable[Chart]:
    """What each change does to the throughput of the base at every point. `known`: all records of the host."""
    measured = sweep.measured(known)
    base = measured.get(sweep.base or "")
    if base is None or len(measured) < 2:
        return
    for point in base.points():
        figures = {name: figure for name, one in measured.items() if (figure := one.figure(point, THROUGHPUT))}
        if (before := figures.get(base.profile)) is None:
            continue
        noise = host_noise(known, THROUGHPUT, [point])
        dots = {_changes(sweep, name): _relative(figure, before) for name, figure in figures.items()}
        verdicts = [_VERDICTS[compared(figure, before, noise)] for figure in figures.values()]
        yield Chart(
            title=f"Effect of each change, {point}",
            text=f"Throughput relative to {sweep.base} in percent, with 95% intervals.",
            svg=charts.bars(dots, "% of the base's throughput", 100),
            header=["change", "% of the base", "95% interval", "beyond noise"],
            rows=[
                [name, _shown(dot.y), _interval(dot.interval), verdict]
                for (name, dot), verdict in zip(dots.items(), verdicts, strict=True)
            ],
        )


_VERDICTS: Final = {1: "faster", 0: "equal", -1: "slower"}


def _changes(sweep: Sweep, name: str) -> str:
    changes = next(entry.changes for entry in sweep.entries if entry.name == name)
    shown = ", ".join(f"{knob.removeprefix('server.')}={value}" for knob, value in changes.items())
    return shown or name


def _relative(figure: Figure, before: Figure) -> charts.Dot:
    low, high = figure.interval
    scale = 100 / before.median
    return charts.Dot(0, figure.median * scale, Interval(low * scale, high * scale))


def history(records: Sequence[Record]) -> Iterable[Chart]:
    """The throughput over time, at its highest concurrency, of every profile that was measured more than once."""
    series: dict[str, list[tuple[str, float, bool]]] = {}
    for record in sorted(records, key=lambda record: record.started):
        points = record.points()
        if not points:
            continue
        top = max((p for p in points if p.traffic == points[0].traffic), key=lambda point: point.concurrency)
        figure = record.figure(top, THROUGHPUT)
        if figure is not None:
            moment = f"{record.started:%Y-%m-%d %H:%M}"
            series.setdefault(f"{record.profile}, {top}", []).append((moment, figure.median, record.accepted))
    series = {name: values for name, values in series.items() if len(values) > 1}
    if series:
        yield Chart(
            title="History",
            text="Output tokens per second, at the highest concurrency, of what was measured more than once; "
            "a cross is a record that the gate did not accept.",
            svg=charts.history(series, "output tokens/s"),
            header=["profile", "when (UTC)", "tok/s", "accepted"],
            rows=[
                [name, moment, _shown(value), "yes" if good else "no"]
                for name, values in series.items()
                for moment, value, good in values
            ],
        )


def _with_interval(figure: Figure) -> tuple[str, str]:
    return _shown(figure.median), _interval(figure.interval)


def _interval(interval: Interval | None) -> str:
    return "" if interval is None else f"{_shown(interval.low)} to {_shown(interval.high)}"


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"
