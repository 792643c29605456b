"""`results/report.html` and `results/report.md`: everything that was measured, compared.

python -m roles.benchmark.report      writes both from the records in results/
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment as Templates
from jinja2 import FileSystemLoader, StrictUndefined

from roles.benchmark import charts
from roles.benchmark.gate import LATENCY, PERCENTILE, THROUGHPUT
from roles.benchmark.record import Record
from roles.benchmark.results import RESULTS
from roles.benchmark.rounds import Point
from roles.benchmark.statistics import Figure, Interval
from roles.benchmark.sweep import Ranking, Sweep, pareto_set, rankings, tradeoff
from roles.refusal import Refusal


@dataclass(frozen=True)
class Chart:
    """An image, what it shows in words, and its numbers for those who cannot see it."""

    title: str
    text: str
    svg: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Host:
    """One host's part of the report."""

    name: str
    latest: Sequence[Record]
    """The last record of each profile that was measured."""
    failures: Sequence[Record]
    """Those of the last records that failed, with what is known of why."""
    charts: Sequence[Chart]
    rankings: Sequence[Ranking]
    sweeps: Sequence[Sweep]
    environment: Sequence[tuple[str, Sequence[tuple[str, bool]]]]
    """Each property with its value for each of `latest`; True where it is not the value of the first."""


@dataclass(frozen=True)
class Report:
    hosts: Sequence[Host]
    unreadable: Sequence[str]


def write_report(results: Path = RESULTS) -> None:
    """Write both forms of the report next to the records."""
    results.mkdir(parents=True, exist_ok=True)
    report = read_results(results)
    for template, name in (("report.html.j2", "report.html"), ("report.md.j2", "report.md")):
        new = results / f".{name}.new"
        new.write_text(_templates().get_template(template).render(report=report), encoding="utf-8")
        new.replace(results / name)


@cache
def _templates() -> Templates:
    templates = Templates(
        loader=FileSystemLoader(Path(__file__).parents[2] / "templates" / "benchmark"),
        undefined=StrictUndefined,
        autoescape=lambda name: name is not None and name.startswith("report.html"),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["cell"] = lambda text: str(text).replace("|", "\\|").replace("\n", " ")
    return templates


def read_results(results: Path) -> Report:
    """All that lies in results/<host>/. What cannot be read is named, and does not hide the rest."""
    hosts, unreadable = [], []
    for folder in sorted(path for path in results.iterdir() if path.is_dir()):
        records, sweeps = [], []
        for path in sorted(folder.glob("*.json")):
            try:
                records.append(Record.read_json(path.read_text(encoding="utf-8"), str(path)))
            except Refusal as refusal:
                unreadable.append(str(refusal))
        for path in sorted(folder.glob("sweeps/*.json")):
            try:
                sweeps.append(Sweep.read_json(path.read_text(encoding="utf-8"), str(path)))
            except Refusal as refusal:
                unreadable.append(str(refusal))
        if records or sweeps:
            hosts.append(host_report(folder.name, records, sweeps))
    return Report(hosts, unreadable)


def host_report(name: str, records: Sequence[Record], sweeps: Sequence[Sweep]) -> Host:
    """One host's records, the oldest first, put in relation to each other."""
    newest = {record.profile: record for record in sorted(records, key=lambda record: record.started)}
    latest = [record for record in newest.values() if record.points()]
    by_profile = {record.profile: record for record in latest}
    found: list[Chart] = []
    for traffic in dict.fromkeys(point.traffic for record in latest for point in record.points()):
        found += [_throughput(by_profile, traffic), *_latency(by_profile, traffic), _pareto(by_profile, traffic)]
    found += [chart for sweep in sweeps for chart in _ablation(sweep, records)]
    return Host(
        name=name,
        latest=latest,
        failures=[record for record in newest.values() if not record.accepted],
        charts=[*found, *_history(records)],
        rankings=rankings(by_profile) if len(by_profile) > 1 else [],
        sweeps=sweeps,
        environment=_environment(latest),
    )


def _at(record: Record, traffic: str) -> list[Point]:
    return sorted((p for p in record.points() if p.traffic == traffic), key=lambda point: point.concurrency)


def _throughput(records: Mapping[str, Record], traffic: str) -> Chart:
    series: dict[str, list[charts.Dot]] = {}
    lines: list[charts.Line] = []
    rows: list[list[str]] = []
    for number, (name, record) in enumerate(records.items()):
        for point in _at(record, traffic):
            if (figure := record.figure(point, THROUGHPUT)) is None:
                continue
            series.setdefault(name, []).append(charts.Dot(point.concurrency, figure.median, figure.interval))
            reference = record.references.get(point.concurrency)
            ceiling = record.ceiling(traffic, point.concurrency)
            rows.append([name, str(point.concurrency), *_with_interval(figure), _shown(reference), _shown(ceiling)])
        lines += _lines(record, number, _at(record, traffic))
    return Chart(
        title=f"Throughput, {traffic}",
        text="Output tokens per second of all requests together over their number at once; bars are 95% intervals, "
        "dashes are reference results from elsewhere, dots are what the hardware could reach at most.",
        svg=charts.curves(series, lines, "concurrent requests", "output tokens/s"),
        header=["profile", "C", "tok/s", "95% interval", "reference", "ceiling"],
        rows=rows,
    )


def _lines(record: Record, number: int, points: Sequence[Point]) -> Iterable[charts.Line]:
    references = [(point, record.references.get(point.concurrency)) for point in points]
    ceilings = [(point, record.ceiling(point.traffic, point.concurrency)) for point in points]
    for label, dash, values in (("reference", "--", references), ("ceiling", ":", ceilings)):
        dots = [(float(point.concurrency), value) for point, value in values if value is not None]
        if dots:
            yield charts.Line(f"{record.profile} {label}", dots, number, dash)


def _latency(records: Mapping[str, Record], traffic: str) -> Iterable[Chart]:
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


def _pareto(records: Mapping[str, Record], traffic: str) -> Chart:
    best = pareto_set(records, traffic)
    series = {
        name: [(x, y, f"C={point.concurrency}") for x, y, point in tradeoff(record, traffic)]
        for name, record in records.items()
    }
    rows = [
        [name, label, _shown(x), _shown(y), "yes" if (x, y) in best.get(name, ()) else "no"]
        for name, points in series.items()
        for x, y, label in points
    ]
    return Chart(
        title=f"One user against all, {traffic}",
        text="Filled points are the Pareto set: nothing that was measured here is better both for one user and "
        "for all together.",
        svg=charts.tradeoffs({name: points for name, points in series.items() if points}, best),
        header=["profile", "C", "tok/s for one user", "tok/s for all", "Pareto set"],
        rows=rows,
    )


def _ablation(sweep: Sweep, records: Sequence[Record]) -> Iterable[Chart]:
    """What each change does to the throughput of the base at every point."""
    by_name = {record.name: record for record in records}
    measured = {entry.name: by_name[entry.record] for entry in sweep.entries if entry.record in by_name}
    base = measured.get(sweep.base or "")
    if base is None or len(measured) < 2:
        return
    for point in base.points():
        before = base.figure(point, THROUGHPUT)
        if before is None:
            continue
        dots = {
            _changes(sweep, name): _relative(figure, before)
            for name, record in measured.items()
            if (figure := record.figure(point, THROUGHPUT)) is not None
        }
        yield Chart(
            title=f"Effect of each change, {point}",
            text=f"Throughput relative to {sweep.base} in percent, with 95% intervals.",
            svg=charts.bars(dots, "% of the base's throughput", 100),
            header=["change", "% of the base", "95% interval"],
            rows=[[name, _shown(dot.y), _interval(dot.interval)] for name, dot in dots.items()],
        )


def _changes(sweep: Sweep, name: str) -> str:
    changes = next(entry.changes for entry in sweep.entries if entry.name == name)
    shown = ", ".join(f"{knob.removeprefix('server.')}={value}" for knob, value in changes.items())
    return shown or name


def _relative(figure: Figure, before: Figure) -> charts.Dot:
    low, high = figure.interval
    scale = 100 / before.median
    return charts.Dot(0, figure.median * scale, Interval(low * scale, high * scale))


def _history(records: Sequence[Record]) -> Iterable[Chart]:
    """The throughput of every profile at its highest concurrency, over time."""
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
    if series:
        yield Chart(
            title="History",
            text="Output tokens per second at each profile's highest concurrency; a cross is a record that the "
            "gate did not accept.",
            svg=charts.history(series, "output tokens/s"),
            header=["profile", "when (UTC)", "tok/s", "accepted"],
            rows=[
                [name, moment, _shown(value), "yes" if good else "no"]
                for name, values in series.items()
                for moment, value, good in values
            ],
        )


def _environment(records: Sequence[Record]) -> list[tuple[str, list[tuple[str, bool]]]]:
    columns = [_properties(record) for record in records]
    names = dict.fromkeys(name for column in columns for name in column)
    table = []
    for name in names:
        values = [column.get(name, "") for column in columns]
        table.append((name, [(value, value != values[0]) for value in values]))
    return table


def _properties(record: Record) -> dict[str, str]:
    environment = record.environment
    gpus = environment.gpus
    kinds = {"gpus": f"{len(gpus)} x {gpus[0].get('name', '')}", **gpus[0]} if gpus else {"gpus": "none"}
    kinds.pop("name", None)
    return {
        **{name.replace("_", " "): value for name, value in environment.machine.items()},
        **{name.replace("_", " "): value for name, value in kinds.items()},
        "release": environment.release,
        **environment.packages,
        **_flags(environment.command),
        **environment.variables,
    }


def _flags(command: Sequence[str]) -> dict[str, str]:
    """The values of each `--flag` of a command line."""
    flags: dict[str, list[str]] = {}
    for word in command:
        if word.startswith("--"):
            flags[word] = []
        elif flags:
            list(flags.values())[-1].append(word)
    return {flag: " ".join(values) or "yes" for flag, values in flags.items()}


def _with_interval(figure: Figure) -> tuple[str, str]:
    return _shown(figure.median), _interval(figure.interval)


def _interval(interval: Interval | None) -> str:
    return "" if interval is None else f"{_shown(interval.low)} to {_shown(interval.high)}"


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"


if __name__ == "__main__":
    write_report()
    print(RESULTS / "report.html")
