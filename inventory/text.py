"""Text that can reach a host as it is."""

import re
from collections.abc import Iterator
from typing import Final

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
"""Control characters but tab and newline: a shell, systemd or SSH would cut a text off there, or refuse it."""


def control_characters(value: object, key: str) -> Iterator[str]:
    """A sentence for each key, `key` itself or one below it, that is or holds text with control characters."""
    if isinstance(value, str) and _CONTROL.search(value):
        yield f"{key}: a control character is not accepted"
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from control_characters(name, f"{key}.{name!r}")
            yield from control_characters(inner, f"{key}.{name}")
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from control_characters(inner, f"{key}.{place}")
