"""A profile: one way to serve one model. Pure."""

from collections.abc import Mapping
from typing import Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from roles.benchmark.benchmark import Benchmark
from roles.documents import Document, EnvironmentVariables

Flag = bool | int | float | str | list[int] | list[str] | dict[str, object]

RESERVED_ENVIRONMENT: Final = {
    "CUDA_VISIBLE_DEVICES": "use `gpus`",
    "CUDA_HOME": "it is the toolkit of the release",
    "HOME": "it is the cache of the release",
    "PATH": "it follows from the release and its toolkit",
    "SLIPWAY_FINGERPRINT": "Slipway knows by it what runs",
}
"""Environment variables of a server that are not a user's to set, and why."""


def unreserved(environment: EnvironmentVariables) -> EnvironmentVariables:
    """The environment. Raises ValueError for a variable that is not a user's to set."""
    if wrong := next((name for name in environment if name in RESERVED_ENVIRONMENT), None):
        raise ValueError(f"{wrong} is not set here; {RESERVED_ENVIRONMENT[wrong]}")
    return environment


class Reference(Document):
    """A result measured elsewhere: to compare with, never a promise."""

    concurrency: int = Field(gt=0)
    output_tokens_per_second: float = Field(gt=0)
    source: str


class Finding(Document):
    """Something else that is known of a profile, a failure above all: a failed profile is a result."""

    text: str
    source: str


class Smoke(Document):
    """The `smoke:` block of a profile: real requests that a started server must answer before it is measured."""

    readable: bool = True
    """Refuse text as a broken kernel makes it: empty, one token repeated. Random weights make it too."""
    requests: int = Field(160, gt=0)
    """Short requests: some servers hang after 80 to 140."""
    concurrency: int = Field(32, gt=0)
    """How many of them are sent at a time."""


class Profile(Document):
    """group_vars/profiles/<name>.yml, its `extends:` resolved."""

    name: str
    """The file's name."""
    description: str
    """One sentence: what the profile is for."""
    model: str
    """Name of a file in group_vars/models."""
    draft: str | None = None
    """Name of a file in group_vars/models: the draft model, unless the model has its own."""
    gpus: Literal["all"] | tuple[int, ...] = "all"
    """Which of the host's GPUs."""
    server: dict[str, Flag] = Field(default_factory=dict)
    """SGLang's own flags in snake case, e.g. `tp_size: 8`; checked against the catalogue of the release."""
    environment: EnvironmentVariables = Field(default_factory=dict)
    """Environment variables of the server."""
    smoke: Smoke = Field(default={}, validate_default=True)
    """What a started server must answer."""
    benchmark: Benchmark = Field(default={}, validate_default=True)
    """What is measured, and what the result must reach."""
    reference: tuple[Reference, ...] = ()
    findings: tuple[Finding, ...] = ()

    _environment = field_validator("environment")(unreserved)

    @model_validator(mode="after")
    def _draft_is_used(self) -> Self:
        if self.draft and "speculative_algorithm" not in self.server:
            raise ValueError(
                f"draft: {self.draft} would not be used; write `server: {{speculative_algorithm: …}}`, "
                "or leave it out"
            )
        return self

    @model_validator(mode="after")
    def _references_are_there(self) -> Self:
        known = {reference.concurrency for reference in self.reference}
        for floor in self.benchmark.floors:
            if floor.share_of_reference is not None and floor.concurrency not in known:
                raise ValueError(
                    f"benchmark.floors: share_of_reference at concurrency {floor.concurrency} needs a `reference` of "
                    "this profile at that concurrency, which is not inherited"
                )
        return self


OWN = frozenset({"description", "reference", "findings"})
"""What a profile says of itself, and a profile that extends it does not inherit."""


def extended(child: Mapping[str, object], parent: Mapping[str, object]) -> dict[str, object]:
    """A profile file's values on top of those of the profile that it `extends`, whose own are resolved.

    Blocks such as `server` and `benchmark` are merged key by key, and null takes an inherited key away;
    everything else replaces what it inherits.
    """
    inherited = {key: value for key, value in parent.items() if key not in OWN}
    return _merged(child, inherited)


def _merged(child: Mapping[str, object], parent: Mapping[str, object]) -> dict[str, object]:
    merged = dict(parent)
    for key, value in child.items():
        below = parent.get(key)
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(below, Mapping):
            merged[key] = _merged(value, below)
        else:
            merged[key] = value
    return merged
