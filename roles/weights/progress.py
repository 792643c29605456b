"""Progress of a download as lines of text. Standard library only, for the host."""

import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple

SECONDS = 10.0
"""Between two lines."""

WINDOW = 6
"""Lines over which the rate is taken: recent enough to be true now, long enough to be calm."""


class Moment(NamedTuple):
    """How far it is, in bytes of which there are `total`, `at` seconds on a clock that never goes back."""

    at: float
    fetched: int
    verified: int


def line(before: Moment, now: Moment, total: int) -> str:
    """Bytes, rate and time left; the rate is that since `before`."""
    seconds = max(now.at - before.at, 1e-9)
    fetching = now.fetched < total
    rate = ((now.fetched - before.fetched) if fetching else (now.verified - before.verified)) / seconds
    left = total - (now.fetched if fetching else now.verified)
    return (
        f"{amount(now.fetched)} of {amount(total)} fetched, {amount(now.verified)} verified, "
        f"{amount(round(rate))}/s, {_time(left / rate) if rate > 0 else 'unknown time'} left"
    )


def amount(count: int) -> str:
    """Bytes in the units that disks and the hub are sold in, powers of 1000."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _time(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes or 'under 1'} min"


class Progress:
    """Prints a line from time to time while the block runs; `verified` may be called by several threads."""

    def __init__(self, total: int, fetched: Callable[[], int]) -> None:
        self._total, self._fetched = total, fetched
        self._verified = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._moments = deque([self._now()], maxlen=WINDOW)
        self._thread = threading.Thread(target=self._report, daemon=True)

    def verified(self, count: int) -> None:
        """`count` more bytes have been read and hashed."""
        with self._lock:
            self._verified += count

    def _now(self) -> Moment:
        return Moment(time.monotonic(), min(self._fetched(), self._total), min(self._verified, self._total))

    def _report(self) -> None:
        while not self._over.wait(SECONDS):
            now = self._now()
            print(line(self._moments[0], now, self._total), flush=True)
            self._moments.append(now)

    def __enter__(self) -> "Progress":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
