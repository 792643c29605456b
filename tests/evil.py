"""Text that does harm wherever a shell reads it unquoted, and the variables that accept it."""

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from inventory.variables import SETTINGS
from roles.settings import RoleSettings

EVIL = """-x "a' b"c $(injected) `injected`; injected && injected | injected %h ${HOME} $HOME \\
injected
"""
"""Runs the command `injected` wherever it is not quoted."""

ONE_LINE = EVIL.replace("\n", " ") + "x"

TEXTS = (EVIL, ONE_LINE, f"/{EVIL}", f"/{ONE_LINE}", f"https://{ONE_LINE}.whl", f"https://host/{ONE_LINE}.whl")
"""A setting may ask for an absolute path or a URL."""


def accepted_evil(settings: type[RoleSettings]) -> Iterator[tuple[str, Any]]:
    """Every variable of a role with the worst text that it accepts."""
    for name in settings.model_fields:
        for text in TEXTS:
            for value in (text, [text], {"X": text}, {text: text}, {text: 1}):
                try:
                    settings.model_validate({name: value})
                except ValidationError:
                    continue
                yield settings.prefix + name, value
                break
            else:
                continue
            break


def evil_variables() -> dict[str, Any]:
    """The evil values that one host can have at once."""
    return {name: value for settings in SETTINGS for name, value in accepted_evil(settings)}
