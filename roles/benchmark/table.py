"""Records and sweeps as tables for the terminal, 80 columns wide. Pure."""

from collections.abc import Sequence
from datetime import timedelta
from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from roles.benchmark.comparison import pareto_set, rankings, traffics
from roles.benchmark.gate import THROUGHPUT
from roles.benchmark.record import Judgement, Record
from roles.benchmark.rounds import Point
from roles.benchmark.statistics import Figure
from roles.benchmark.sweep import Sweep

WIDTH = 80

_MARKS = {"passed": "ok", "failed": "FAILED", "noted": "note"}


def table(record: Record, *, colour: bool = False) -> str:
    """Figures by point, then every judgement with the numbers it used."""
    console = _console(colour=colour)
    ready = "" if record.startup_seconds is None else f", ready after {record.startup_seconds:.0f} s"
    console.print(f"{record.profile} on {record.host}, {record.level}: {_outcome(record)}{ready}", style="bold")
    if record.points():
        console.print(_figures(record))
    if record.verdict is not None:
        console.print(_judgements(record.verdict.judgements))
    if record.failure is not None:
        console.print(Text(f"Not measured: {record.failure}", "red"))
    return _text(console)


def sweep_table(sweep: Sweep, history: Sequence[Record]) -> str:
    """What became of every trial, who is best at what, and the Pareto set. `history`: the host's records."""
    console = _console(colour=False)
    grid = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("trial", "result", "took", "cause"):
        grid.add_column(heading, overflow="fold")
    for entry in sweep.entries:
        took = str(timedelta(seconds=round(entry.seconds))) if entry.seconds else ""
        grid.add_row(entry.name, entry.status, took, Text(entry.cause))
    console.print(grid)
    records = sweep.measured(history)
    for ranking in rankings(records, history):
        console.print(f"\n{ranking.objective}, {ranking.unit} (a shared place: equal within noise)", style="bold")
        for place in ranking.places:
            console.print(f"  {place.place}. {place.name}  {place.figure.median:,.1f}")
    for traffic in traffics(records):
        console.print(f"\n{traffic}: Pareto set, tok/s for one user and for all", style="bold")
        for name, places in pareto_set(records, history, traffic).items():
            for one in places:
                shown = f"{one.speed.median:,.1f} and {one.throughput.median:,.1f}"
                console.print(f"  {name} C={one.point.concurrency}  {shown}")
    return _text(console)


def _console(*, colour: bool) -> Console:
    return Console(file=StringIO(), width=WIDTH, force_terminal=colour, no_color=not colour, highlight=False)


def _text(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def _outcome(record: Record) -> str:
    if record.verdict is None:
        return "not judged"
    return "accepted" if record.accepted else "FAILED"


def _figures(record: Record) -> Table:
    grid = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    grid.add_column("traffic")
    for heading in ("C", "tok/s", "95% interval", "TTFT p50", "p99", "TPOT p50", "p99"):
        grid.add_column(heading, justify="right", no_wrap=True)
    for point in record.points():
        grid.add_row(point.traffic, str(point.concurrency), *_row(record, point))
    grid.caption = "TTFT and TPOT in milliseconds; medians of the repeats"
    grid.caption_justify = "left"
    return grid


def _row(record: Record, point: Point) -> list[str]:
    throughput = record.figure(point, THROUGHPUT)
    low, high = throughput.interval if throughput else (0.0, 0.0)
    return [
        _shown(throughput),
        f"{low:,.1f}-{high:,.1f}" if throughput else "-",
        *(
            _shown(record.figure(point, metric))
            for metric in ("median_ttft_ms", "p99_ttft_ms", "median_tpot_ms", "p99_tpot_ms")
        ),
    ]


def _shown(figure: Figure | None) -> str:
    return "-" if figure is None else f"{figure.median:,.1f}"


def _judgements(judgements: tuple[Judgement, ...]) -> Table:
    grid = Table(box=None, padding=(0, 1, 0, 0), show_header=False)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column()
    for judgement in judgements:
        style = {"failed": "red", "passed": "green"}.get(judgement.outcome, "dim")
        about = f"{judgement.subject} {judgement.point}".rstrip()
        grid.add_row(Text(_MARKS[judgement.outcome], style), about, Text(judgement.text))
    return grid
