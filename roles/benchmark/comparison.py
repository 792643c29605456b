"""How servers compare: a ranking for each objective, and the Pareto set. What noise explains is equal. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from roles.benchmark.noise import host_noise
from roles.benchmark.record import Record
from roles.benchmark.rounds import Point
from roles.benchmark.statistics import Figure, Ranked, compared, pareto, ranking


class Ranking(NamedTuple):
    """Trials from best to worst by one objective; equal places are equal within noise."""

    objective: str
    unit: str
    places: Sequence[Ranked]


class Tradeoff(NamedTuple):
    """A server at one concurrency."""

    point: Point
    speed: Figure
    """Tokens per second for one user."""
    throughput: Figure
    """Output tokens per second of all users together."""


def rankings(records: Mapping[str, Record], history: Sequence[Record]) -> list[Ranking]:
    """By latency of a lone request, by throughput at each concurrency and at its peak, and by goodput.

    `history`: all records of the host, from which its noise is learnt.
    """
    found = []
    for traffic in traffics(records):
        points = {point for record in records.values() for point in record.points() if point.traffic == traffic}
        for objective, metric, unit, chosen in _objectives(points):
            figures = {name: best for name, record in records.items() if (best := _best(record, metric, chosen))}
            if figures:
                noise = host_noise(history, metric, chosen)
                places = ranking(figures, noise, highest=unit != "ms")
                found.append(Ranking(f"{traffic}: {objective}", unit, places))
    return found


def traffics(records: Mapping[str, Record]) -> list[str]:
    """The names of all shapes of traffic that were measured."""
    return list(dict.fromkeys(point.traffic for record in records.values() for point in record.points()))


def _objectives(points: Collection[Point]) -> Iterator[tuple[str, str, str, Collection[Point]]]:
    """Objective, the client's metric, its unit, and the points of which each server's best one counts."""
    for concurrency in sorted({point.concurrency for point in points}):
        chosen = {point for point in points if point.concurrency == concurrency}
        if concurrency == 1:
            yield "latency at C=1", "median_e2e_latency_ms", "ms", chosen
        yield f"throughput at C={concurrency}", "output_throughput", "tok/s", chosen
    yield "peak throughput", "output_throughput", "tok/s", points
    yield "goodput", "request_goodput", "requests/s", points


def _best(record: Record, metric: str, points: Collection[Point]) -> Figure | None:
    """The highest of a server's figures at these points; a latency is asked for at one only."""
    figures = [record.figure(point, metric) for point in record.points() if point in points]
    return max((figure for figure in figures if figure), key=lambda figure: figure.median, default=None)


def tradeoffs(record: Record, traffic: str) -> list[Tradeoff]:
    """Each concurrency's tokens per second for one user, and for all of them together."""
    found = []
    for point in record.points():
        tpot, throughput = record.figure(point, "median_tpot_ms"), record.figure(point, "output_throughput")
        if point.traffic == traffic and tpot and throughput and all(tpot.values):
            found.append(Tradeoff(point, Figure(tuple(1000 / value for value in tpot.values)), throughput))
    return found


def pareto_set(records: Mapping[str, Record], history: Sequence[Record], traffic: str) -> dict[str, list[Tradeoff]]:
    """Where nothing beats a server: nothing is better for one user or for all and no worse for the other."""
    series = {name: tradeoffs(record, traffic) for name, record in records.items()}
    points = {one.point for places in series.values() for one in places}
    noise_of_speed = host_noise(history, "median_tpot_ms", points)
    noise_of_throughput = host_noise(history, "output_throughput", points)

    def beats(one: Tradeoff, other: Tradeoff) -> bool:
        faster = compared(one.speed, other.speed, noise_of_speed)
        more = compared(one.throughput, other.throughput, noise_of_throughput)
        return max(faster, more) > 0 and min(faster, more) >= 0

    return pareto(series, beats)
