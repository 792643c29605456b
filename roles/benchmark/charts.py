"""Charts as SVG that follows the page's colours, so that they can be read on paper and in the dark. Pure."""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import matplotlib as mpl
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from roles.benchmark.statistics import Interval

INK: Final = "#010203"
"""Stands for the page's text colour until the page is known."""
SERIES: Final = tuple(f"#0{number}0a0b" for number in range(1, 9))
"""Stand for the page's series colours."""
MARKERS: Final = "osD^vPX*"
"""A series can be told from the others without its colour, too."""

_HALF_A_LINE: Final = 36
"""Characters of a legend's label."""

_STYLE: Final[Any] = {
    "svg.fonttype": "none",  # text stays text: it can be searched, read aloud and recoloured
    "svg.hashsalt": "slipway",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.prop_cycle": cycler(color=SERIES),
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": INK,
    "grid.alpha": 0.15,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "legend.frameon": False,
}


class Dot(NamedTuple):
    """A value with its 95 % interval."""

    x: float
    y: float
    interval: Interval | None = None


class Spot(NamedTuple):
    """A labelled point in the plane; filled if nothing is better."""

    x: float
    y: float
    text: str
    filled: bool


class Line(NamedTuple):
    """A value that is not a measurement of the series: a reference result or a ceiling."""

    label: str
    dots: Sequence[tuple[float, float]]
    series: int
    """Whose colour it takes."""
    dash: str


def curves(series: Mapping[str, Sequence[Dot]], lines: Iterable[Line], x: str, y: str) -> str:
    """One curve for each name over a logarithmic x, with intervals as bars."""
    with mpl.rc_context(_STYLE):
        canvas, axes = _axes(x, y)
        for number, (name, dots) in enumerate(series.items()):
            _curve(axes, number, name, dots)
        for line in lines:
            xs, ys = zip(*line.dots, strict=True)
            colour = SERIES[line.series % len(SERIES)]
            axes.plot(xs, ys, line.dash, color=colour, marker="_", markersize=9, label=line.label, alpha=0.8)
        ticks = sorted({dot.x for dots in series.values() for dot in dots})
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        _from_zero(axes)
        return _svg(canvas, axes)


def _curve(axes: Axes, number: int, name: str, dots: Sequence[Dot]) -> None:
    below = [dot.y - dot.interval.low if dot.interval else 0 for dot in dots]
    above = [dot.interval.high - dot.y if dot.interval else 0 for dot in dots]
    axes.errorbar(
        [dot.x for dot in dots],
        [dot.y for dot in dots],
        yerr=[[max(0, value) for value in below], [max(0, value) for value in above]],
        color=SERIES[number % len(SERIES)],
        marker=_marker(number),
        capsize=3,
        label=name,
    )


def percentiles(series: Mapping[str, Mapping[float, tuple[float, float, float]]], x: str, y: str) -> str:
    """For each name, over x, p50 as a line, p95 dashed and p99 dotted."""
    with mpl.rc_context(_STYLE):
        canvas, axes = _axes(x, y)
        for number, (name, values) in enumerate(series.items()):
            colour = SERIES[number % len(SERIES)]
            xs = sorted(values)
            p50, p95, p99 = ([values[at][place] for at in xs] for place in range(3))
            axes.plot(xs, p50, color=colour, marker=_marker(number), label=f"{name} p50")
            axes.plot(xs, p95, "--", color=colour, linewidth=1)
            axes.plot(xs, p99, ":", color=colour, linewidth=1)
        ticks = sorted({at for values in series.values() for at in values})
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        return _svg(canvas, axes)


def tradeoffs(series: Mapping[str, Sequence[Spot]]) -> str:
    """Speed for one user against throughput for all."""
    with mpl.rc_context(_STYLE):
        canvas, axes = _axes("tokens per second for one user (1 / TPOT)", "tokens per second for all users")
        for number, (name, spots) in enumerate(series.items()):
            colour = SERIES[number % len(SERIES)]
            axes.plot([spot.x for spot in spots], [spot.y for spot in spots], color=colour, alpha=0.4)
            any_filled = any(spot.filled for spot in spots)
            for filled in (True, False):
                shown = [spot for spot in spots if spot.filled is filled]
                axes.plot(
                    [spot.x for spot in shown],
                    [spot.y for spot in shown],
                    _marker(number),
                    color=colour,
                    markerfacecolor=colour if filled else "none",
                    label=name if filled is any_filled else None,
                )
            for spot in spots:
                axes.annotate(spot.text, (spot.x, spot.y), textcoords="offset points", xytext=(6, 4), fontsize=8)
        _from_zero(axes)
        axes.set_xlim(left=0)
        return _svg(canvas, axes)


def bars(values: Mapping[str, Dot], x: str, baseline: float) -> str:
    """A bar with its interval for each name, and a line at what is compared with."""
    with mpl.rc_context(_STYLE):
        canvas, axes = _axes(x, "", height=0.6 + 0.42 * len(values))
        names = list(values)
        for place, name in enumerate(names):
            dot = values[name]
            interval = dot.interval or Interval(dot.y, dot.y)
            spread = [[max(0, dot.y - interval.low)], [max(0, interval.high - dot.y)]]
            axes.barh(place, dot.y, xerr=spread, height=0.6, color=SERIES[0], alpha=0.7, ecolor=INK, capsize=3)
        axes.axvline(baseline, color=INK, linestyle="--", linewidth=1)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        return _svg(canvas, axes, legend=False)


def history(series: Mapping[str, Sequence[tuple[str, float, bool]]], y: str) -> str:
    """For each name its values in time, by the label of their time; a cross is a record that failed the gate."""
    with mpl.rc_context(_STYLE):
        canvas, axes = _axes("", y)
        labels = sorted({label for values in series.values() for label, _, _ in values})
        for number, (name, values) in enumerate(series.items()):
            colour = SERIES[number % len(SERIES)]
            places = [labels.index(label) for label, _, _ in values]
            axes.plot(places, [value for _, value, _ in values], color=colour, alpha=0.4)
            for good, marker in ((True, _marker(number)), (False, "x")):
                chosen = [(at, value) for at, (_, value, ok) in zip(places, values, strict=True) if ok is good]
                label = name if good else f"{name}, not accepted"
                if chosen:
                    axes.plot([at for at, _ in chosen], [v for _, v in chosen], marker, color=colour, label=label)
        axes.set_xticks(range(len(labels)), labels, rotation=30, ha="right", fontsize=8)
        _from_zero(axes)
        return _svg(canvas, axes)


def _marker(number: int) -> str:
    """Not the same pair of colour and marker before 64 series."""
    return MARKERS[(number + number // len(SERIES)) % len(MARKERS)]


def _axes(x: str, y: str, height: float = 3.6) -> tuple[Canvas, Axes]:
    canvas = Canvas(figsize=(7.2, height), layout="constrained")
    axes = canvas.add_subplot()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return canvas, axes


def _from_zero(axes: Axes) -> None:
    """Heights are to be compared, and the highest marker to be whole."""
    axes.set_ylim(0, 1.06 * axes.dataLim.ymax)


def _legend(canvas: Canvas, axes: Axes) -> None:
    """Below the axes, which keep their size however many and long the names are."""
    handles, labels = axes.get_legend_handles_labels()
    columns = 2 if max(map(len, labels), default=0) <= _HALF_A_LINE else 1
    canvas.set_figheight(canvas.get_figheight() + 0.2 * -(-len(labels) // columns))
    canvas.legend(handles, labels, loc="outside lower left", ncols=columns, fontsize=9)


def _svg(canvas: Canvas, axes: Axes, *, legend: bool = True) -> str:
    """The chart as an element to stand in a page."""
    axes.xaxis.set_minor_locator(NullLocator())
    if axes.get_yscale() == "log":
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.yaxis.set_minor_locator(NullLocator())
    if legend:
        _legend(canvas, axes)
    text = io.StringIO()
    FigureCanvasSVG(canvas).print_svg(text, metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "var(--ink)")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' id="[a-z0-9]+_\d+"', "", svg)  # names of elements, which other charts of the page have, too
    for number, colour in enumerate(SERIES):
        svg = svg.replace(colour, f"var(--series-{number})")
    return re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)
