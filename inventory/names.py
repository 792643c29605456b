"""What may be a host's name, and the names that a range of them means. Pure."""

import math
import re
import string
from itertools import product
from typing import Final

MOST: Final = 10_000
"""Hosts that one line of an inventory may mean: more is a slip of the finger, and would take for ever."""

_NAME: Final = re.compile(r"@local|@fake/[\w.:-]+|[\w:][\w.:-]*")


def check_name(name: str) -> None:
    """Raises ValueError for what is no host's name, before SSH, pyinfra or the name of a file trips over it."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is no host's name; accepted are @local, pyinfra's @fake/name, and names or addresses "
            "of letters, digits and . _ - : (no dot or hyphen first)"
        )


def expanded(pattern: str) -> tuple[list[str], int | None]:
    """The hosts that `gpu[01:08].example:2222` means, and the port.

    A range is first:last or first:last:step, of numbers (leading zeros are kept) or of letters; several
    ranges give every combination. Raises ValueError for a range that is none or too long, and for what is no name.
    """
    port = None
    outside = re.sub(r"\[[^]]*]", "", pattern)
    if not pattern.startswith("@") and re.fullmatch(r"[^:]*:\d+", outside):
        pattern, _, digits = pattern.rpartition(":")
        port = int(digits)
    names = _ranges(pattern)
    for name in names:
        check_name(name)
    return names, port


def _ranges(pattern: str) -> list[str]:
    texts = re.split(r"\[([^]]*)]", pattern)  # every second one is what stood between brackets
    parts = [_items(text) if place % 2 else [text] for place, text in enumerate(texts)]
    _refuse_many(math.prod(len(part) for part in parts))
    return ["".join(combination) for combination in product(*parts)]


def _items(bounds: str) -> list[str]:
    match = re.fullmatch(r"(\d*):(\d+)(?::([1-9]\d*))?|([a-zA-Z]):([a-zA-Z])(?::([1-9]\d*))?", bounds)
    if not match:
        raise ValueError(f"[{bounds}] is no range; accepted are for example [1:8], [01:08], [0:6:2], [a:d]")
    first, last, step, first_letter, last_letter, letter_step = match.groups()
    if first_letter:
        letters = string.ascii_letters
        items = list(letters[letters.index(first_letter) : letters.index(last_letter) + 1 : int(letter_step or 1)])
    else:
        width = len(first) if first.startswith("0") and len(first) > 1 else 0
        if width and width != len(last):
            raise ValueError(f"[{bounds}]: with leading zeros both ends must have the same length")
        start, stop, by = int(first or 0), int(last) + 1, int(step or 1)
        _refuse_many((stop - start) // by)
        items = [str(n).zfill(width) for n in range(start, stop, by)]
    if not items:
        raise ValueError(f"[{bounds}] is empty; the first must not be after the last")
    return items


def _refuse_many(count: int) -> None:
    if count > MOST:
        raise ValueError(f"means {count:,} hosts; accepted are at most {MOST:,} in one line")
