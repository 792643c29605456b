"""Render a template without pyinfra, so that what a host gets can be tested as text. Pure."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

_ROOT = Path(__file__).parent.parent / "templates"


def render(template: str, values: Mapping[str, object], filters: Mapping[str, Callable[[str], str]]) -> str:
    """The text of templates/<template> with `values`. A name that is not given is an error, not an empty text."""
    environment = _environment()
    environment.filters.update(filters)
    return environment.get_template(template).render(values)


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(_ROOT),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
