"""Variables that remember where they were written, so that a refusal can name the file."""

from collections.abc import Mapping
from typing import NamedTuple

from inventory.connection import ALIASES


class Value(NamedTuple):
    """A variable's value, the file (or `--data`) that it came from, and the name it had there."""

    value: object
    source: str
    written: str


Values = dict[str, Value]
"""Variables by name. `below | above` is what Ansible does with them: the whole value is replaced."""


def values_from(mapping: Mapping[str, object], source: str) -> Values:
    """The variables of one place, Ansible's connection variables under pyinfra's names."""
    return {ALIASES.get(name, name): Value(value, source, name) for name, value in mapping.items()}


def plain(values: Values) -> dict[str, object]:
    """The variables without their origin."""
    return {name: value.value for name, value in values.items()}
