"""Typed documents: whatever a user writes in YAML becomes one of these, or a refusal."""

from collections.abc import Mapping
from typing import Annotated, Self, get_args

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError
from pydantic_core import ErrorDetails

from roles.refusal import Refusal, nearest

EnvironmentVariables = dict[Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str]
"""Values by name, where systemd would leave out, without an error, what has another name."""


class Document(BaseModel):
    """A frozen document in which an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def read(cls, values: Mapping[str, object], source: str) -> Self:
        """Validate `values`, which came from `source` (a file name, as the user knows it).

        Raises Refusal with one sentence per problem.
        """
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise Refusal("\n".join(f"{source}: {sentence(cls, e)}" for e in error.errors())) from None


def sentence(document: type[BaseModel], problem: ErrorDetails, prefix: str = "") -> str:
    """One of pydantic's problems as 'key: what is accepted', each key with `prefix` before it."""
    key = prefix + ".".join(str(part) for part in problem["loc"])
    match problem["type"]:
        case "extra_forbidden":
            name, siblings = str(problem["loc"][-1]), _fields_at(document, problem["loc"][:-1])
            if len(problem["loc"]) == 1:
                name, siblings = prefix + name, [prefix + sibling for sibling in siblings]
            return f"{key}: unknown key; {nearest(name, siblings)}"
        case "missing":
            return f"{key}: required, but not given"
        case "value_error":
            said = str(problem["ctx"]["error"])
            return f"{key}: {said}" if key else said
        case _:
            return f"{key}: {problem['msg'][:1].lower()}{problem['msg'][1:]}, not {problem['input']!r}"


def _fields_at(document: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """The field names that `document` has at `path`."""
    current: type[BaseModel] | None = document
    for part in path:
        field = current.model_fields.get(str(part)) if current else None
        if field:  # otherwise a place in a list or mapping of documents
            inner = (field.annotation, *get_args(field.annotation))
            current = next((kind for kind in inner if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
    return list(current.model_fields) if current else []
