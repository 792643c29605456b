"""A profile: one way to serve one model. Pure."""

from typing import Literal

from pydantic import Field

from roles.documents import Document

Flag = bool | int | float | str | list[int] | list[str] | dict[str, object]


class Reference(Document):
    """A result measured elsewhere: to compare with, never a promise."""

    concurrency: int = Field(gt=0)
    output_tokens_per_second: float = Field(gt=0)
    source: str


class Profile(Document):
    """group_vars/profiles/<name>.yml, its `extends:` resolved."""

    name: str
    """The file's name."""
    description: str
    """One sentence: what the profile is for."""
    model: str
    """Name of a file in group_vars/models."""
    gpus: Literal["all"] | tuple[int, ...] = "all"
    """Which of the host's GPUs."""
    server: dict[str, Flag] = Field(default_factory=dict)
    """SGLang's own flags in snake case, e.g. `tp_size: 8`; checked against the catalogue of the release."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Environment variables of the server."""
    reference: tuple[Reference, ...] = ()
