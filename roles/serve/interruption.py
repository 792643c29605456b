"""Ctrl-C while a host is being switched: the switch is told, and goes back, instead of being cut off."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import gevent
from greenlet import greenlet

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_guarded: set[greenlet] = set()
_switching: set[greenlet] = set()
_handlers: dict[signal.Signals, Any] = {}


class Interrupted(Exception):  # noqa: N818 -- it is no error
    """The user ended the run."""


@contextmanager
def guarded() -> Iterator[None]:
    """Keep signals from ending the run while a host is being switched or taken back.

    pyinfra would exit at once, with code 0, and leave the host between two profiles.
    """
    own = gevent.getcurrent()
    if not _guarded:
        _handlers.update({number: signal.signal(number, _interrupt) for number in _SIGNALS})
    _guarded.add(own)
    try:
        yield
    finally:
        _guarded.discard(own)
        if not _guarded:
            for number, handler in _handlers.items():
                signal.signal(number, handler)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise Interrupted inside of this, once, when a signal comes."""
    own = gevent.getcurrent()
    _switching.add(own)
    try:
        yield
    finally:
        _switching.discard(own)


def _interrupt(number: int, frame: FrameType | None) -> None:
    for switching in list(_switching):
        gevent.get_hub().loop.run_callback(_throw, switching, Interrupted(signal.Signals(number).name))


def _throw(switching: greenlet, interrupted: Interrupted) -> None:
    if switching in _switching:  # it may have left meanwhile
        _switching.discard(switching)
        switching.throw(interrupted)
