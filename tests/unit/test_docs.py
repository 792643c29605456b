"""The generated tables are those of the settings."""

from typing import Literal

import pytest
from pydantic import Field

from docs.generate import ROOT, pages, table
from roles.documents import Document


@pytest.mark.parametrize("path", [path.relative_to(ROOT) for path in pages()], ids=str)
def test_current(path: str) -> None:
    assert (ROOT / path).read_text() == pages()[ROOT / path], "run `make docs`"


class Example(Document):
    """Of a table."""

    port: int = Field(80, gt=0, lt=65536)
    """Where it
    listens."""
    mode: Literal["a", "b"] | None = None
    names: tuple[str, ...]


def test_a_table() -> None:
    assert table(Example, "web_").splitlines()[2:] == [
        "| `web_port` | whole number, more than 0, less than 65536 | `80` | Where it listens. |",
        "| `web_mode` | `a` or `b` |  |  |",
        "| `web_names` | list of text | required |  |",
    ]
