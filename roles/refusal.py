"""The one kind of error that a user's input can cause."""

from collections.abc import Iterable
from difflib import get_close_matches


class Refusal(ValueError):  # noqa: N818 -- it reads as what it is: the input is refused
    """Input that is refused: one sentence per line, naming the file, the key and what is accepted.

    Pure code raises it; the inventory loader and the tasks turn it into the pyinfra error of their phase,
    which ends the run with exit code 1 before the host is touched.
    """


def nearest(word: str, known: Iterable[str]) -> str:
    """End of a refusal: the nearest valid name if there is one, else all of them."""
    names = sorted(known)
    close = get_close_matches(word, names, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(names) or 'none'}"
