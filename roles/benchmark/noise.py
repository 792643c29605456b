"""How much a host's figures differ between two starts of a server, learnt from its own records. Pure."""

from collections.abc import Collection, Sequence

from roles.benchmark.record import Record
from roles.benchmark.rounds import Point
from roles.benchmark.statistics import restart_noise


def host_noise(history: Sequence[Record], metric: str, points: Collection[Point]) -> float:
    """Relative standard deviation of a figure at these points from one start of a server to the next.

    Accepted records with one fingerprint are starts of one and the same server.
    """
    servers: dict[tuple[str, Point], list[float]] = {}
    for record in history:
        for point in points if record.accepted else ():
            if (figure := record.figure(point, metric)) is not None:
                servers.setdefault((record.fingerprint, point), []).append(figure.median)
    return restart_noise(metric, list(servers.values()))
