"""Ctrl-C while a host is being switched: the switch is told, and goes back, instead of being cut off."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import gevent
from greenlet import greenlet

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_switching: set[greenlet] = set()
_handlers: dict[signal.Signals, Any] = {}


class Interrupted(Exception):  # noqa: N818 -- it is no error
    """The user ended the run."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise Interrupted in every greenlet that is inside of this, one for each host, when a signal comes.

    pyinfra itself would exit at once, with code 0, and leave the host between two profiles.
    """
    if not _switching:
        _handlers.update({number: signal.signal(number, _interrupt) for number in _SIGNALS})
    own = gevent.getcurrent()
    _switching.add(own)
    try:
        yield
    finally:
        _switching.discard(own)
        if not _switching:
            for number, handler in _handlers.items():
                signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    for switching in list(_switching):
        gevent.get_hub().loop.run_callback(switching.throw, Interrupted(signal.Signals(number).name))
