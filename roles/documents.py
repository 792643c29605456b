"""Typed documents: whatever a user writes in YAML becomes one of these, or a refusal."""

import re
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Annotated, Final, Self, get_args

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError
from pydantic_core import ErrorDetails

from roles.refusal import Refusal, nearest

EnvironmentVariables = dict[Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str]
"""Values by name, where systemd would leave out, without an error, what has another name."""

_WORDS: Final = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "string": "text",
    "str": "text",
    "list": "a list",
    "tuple": "a list",
    "dict": "a mapping (`key: value` lines)",
    "model": "a mapping (`key: value` lines)",
}
"""What pydantic's kinds are called by those who write YAML."""

_KIND_ERROR: Final = re.compile(rf"({'|'.join(_WORDS)})_(type|parsing|from_float)")


class Document(BaseModel):
    """A frozen document in which an unknown key is an error."""

    # Built when it is first used: a run needs few of all documents.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @classmethod
    def read(cls, values: Mapping[str, object], source: str) -> Self:
        """Validate `values`, which came from `source` (a file name, as the user knows it).

        Raises Refusal with one sentence per problem.
        """
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            found = [f"{source}: {sentence(cls, e)}{_hint(e)}" for e in problems(cls, error, values)]
            raise Refusal("\n".join(found)) from None


def problems(
    document: type[BaseModel], error: ValidationError, values: Mapping[str, object]
) -> Iterator[ErrorDetails]:
    """What is wrong with `values`, each field once: where a union was expected pydantic complains for each member."""
    fields: dict[tuple[int | str, ...], list[ErrorDetails]] = {}
    for problem in error.errors():
        fields.setdefault(_place(document, problem, values), []).append(problem)
    for place, found in fields.items():
        if len(found) == 1:
            key = found[0]["loc"][-1:] == ("[key]",)
            yield {**found[0], "loc": place} if key else found[0]
        elif all(problem["loc"] == place for problem in found):
            yield from found
        else:
            yield from _of_union(place, found)


def _place(document: type[BaseModel], problem: ErrorDetails, values: object) -> tuple[int | str, ...]:
    """Where in `values` the problem is: its `loc` up to the name of a union's member, which is not in them."""
    path = problem["loc"]
    for depth, part in enumerate(path):
        items = dict(enumerate(values)) if isinstance(values, list | tuple) else values
        if isinstance(items, Mapping) and part in items:
            values = items[part]
        elif part in _fields_at(document, path[:depth]) or (problem["type"], part) == ("missing", path[-1]):
            return path
        else:
            return path[:depth]
    return path


def _of_union(place: tuple[int | str, ...], found: list[ErrorDetails]) -> Iterator[ErrorDetails]:
    """The problem of the one member that was meant, if that is clear from the value; else what all members are."""
    depth = len(place) + 1
    within = [problem for problem in found if len(problem["loc"]) > depth]
    flat = [problem for problem in found if len(problem["loc"]) <= depth]
    bounds = [p for p in flat if p["type"] != "literal_error" and not _KIND_ERROR.fullmatch(p["type"])]
    if bounds:
        yield {**bounds[0], "loc": place}
    elif len({problem["loc"][depth - 1] for problem in within}) == 1:
        for problem in within:
            yield {**problem, "loc": place + problem["loc"][depth:]}
    else:
        members = list(dict.fromkeys(_member(problem, str(problem["loc"][depth - 1])) for problem in found))
        accepted = " or ".join(filter(None, (", ".join(members[:-1]), members[-1])))
        yield {**(flat or found)[0], "type": "union", "loc": place, "msg": f"must be {accepted}"}


def _member(problem: ErrorDetails, name: str) -> str:
    """A member of a union, which pydantic calls `int`, `constrained-str`, `list[int]`, `tuple[int, ...]`, …"""
    if problem["type"] == "literal_error":
        return str(problem["ctx"]["expected"])
    outer, _, items = name.removeprefix("constrained-").partition("[")
    if outer in ("list", "tuple") and items:
        each = {"int": "whole numbers", "float": "numbers", "str": "text"}.get(re.split(r"[],]", items)[0])
        return f"a list of {each}" if each else _WORDS[outer]
    return _WORDS.get(outer, _WORDS["dict"])


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
        case other:
            match = _KIND_ERROR.fullmatch(other)
            message = f"must be {_WORDS[match[1]]}" if match else problem["msg"][:1].lower() + problem["msg"][1:]
            return f"{key}: {message}, not {_as_yaml(problem['input'])}"


def hint(problem: ErrorDetails, key: str, form: str = '{key}: "{text}"') -> str:
    """End of a sentence: how to write text that YAML, without quotes, takes for a number, a date, true or false."""
    text = _meant(problem)
    if text is None:
        return ""
    digits = ", with every digit" if isinstance(problem["input"], float) else ""  # YAML reads 1.10 as 1.1
    return f"; put it in quotes{digits}: {form.format(key=key, text=text)}"


def _hint(problem: ErrorDetails) -> str:
    last = problem["loc"][-1] if problem["loc"] else 0
    return hint(problem, str(last), '"{text}"' if isinstance(last, int) else '{key}: "{text}"')


def _meant(problem: ErrorDetails) -> str | None:
    value = problem["input"]
    if problem["type"] == "literal_error" and isinstance(value, bool):
        words = ("on", "yes", "true") if value else ("off", "no", "false")
        return next((word for word in words if f"'{word}'" in problem["ctx"]["expected"]), None)
    if problem["type"] == "string_type" and isinstance(value, bool | int | float | date):
        return _as_yaml(value)
    return None


def kind(value: object) -> str:
    """What one who writes YAML calls what `value` is."""
    return "nothing" if value is None else _WORDS.get(type(value).__name__, f"a {type(value).__name__}")


def _as_yaml(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, date):
        return str(value)
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _fields_at(document: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """The field names that `document` has at `path`."""
    current: type[BaseModel] | None = document
    for part in path:
        field = current.model_fields.get(str(part)) if current else None
        if field:  # otherwise a place in a list or mapping of documents
            inner = (field.annotation, *get_args(field.annotation))
            current = next((kind for kind in inner if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
    return list(current.model_fields) if current else []
