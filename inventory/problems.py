"""Everything that is wrong with the input, said at once."""

from collections.abc import Iterator
from contextlib import contextmanager

from roles.refusal import Refusal


class Problems:
    """Sentences collected while the input is read; a file shared by many hosts is complained of once."""

    def __init__(self) -> None:
        self._sentences: dict[str, None] = {}

    def add(self, sentence: str) -> None:
        self._sentences[sentence] = None

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Keep a Refusal for later and go on after the block."""
        try:
            yield
        except Refusal as refusal:
            for sentence in str(refusal).splitlines():
                self.add(sentence)

    def refuse(self) -> None:
        """Raise Refusal with every sentence there is, if there is one."""
        if self._sentences:
            raise Refusal("\n".join(self._sentences))
