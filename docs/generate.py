"""Writes the variable tables: one into each role's README.md, and all of them into docs/variables.md.

`make docs` runs it. Types, defaults and bounds come from the settings as pydantic knows them, meanings from
the docstrings below the fields.
"""

import ast
import inspect
import json
import types
import typing
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from inventory.connection import Connection, Privileges
from inventory.variables import SETTINGS, Variables
from roles.documents import Document
from roles.serve.profile import Flag, Profile
from roles.settings import RoleSettings
from roles.weights.model import Model

ROOT: Final = Path(__file__).resolve().parent.parent

BEGIN: Final = "<!-- variables: written by make docs -->\n"
END: Final = "<!-- end of variables -->\n"

WORDS: Final[dict[Any, str]] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    object: "anything",
    Flag: "a flag's value",
}
BOUNDS: Final = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}

PAGE: Final = f"""# Variables

{BEGIN}
Written in `group_vars`, `host_vars`, the inventory, or for one run with `--data name=value`;
[inventory.md](inventory.md) says which of them wins. Every name is checked before any host is touched.

"""


def pages() -> dict[Path, str]:
    """The text that every generated file should have."""
    sections = [
        section("Variables of no single role", Variables),
        section("Connection", Connection),
        section("Becoming root", Privileges, "_"),
        *(section(f"Role {role(settings)}: {settings.prefix}…", settings, settings.prefix) for settings in SETTINGS),
        section("Models", Model),
        section("Profiles", Profile),
        *(section(document.__name__, document) for document in nested([Variables, *SETTINGS, Model, Profile])),
    ]
    found = {ROOT / "docs/variables.md": PAGE + "\n".join(sections)}
    for name, own in groupby(SETTINGS, role):
        readme = ROOT / "roles" / name / "README.md"
        if not readme.exists():
            continue
        before, _, rest = readme.read_text().partition(BEGIN)
        if not rest:
            before = f"{before.rstrip()}\n\n## Variables\n\n"
        tables = "\n".join(table(settings, settings.prefix) for settings in own)
        found[readme] = f"{before}{BEGIN}\n{tables}\n{END}{rest.partition(END)[2]}"
    return found


def role(settings: type[RoleSettings]) -> str:
    """The role that settings belong to, which is their package."""
    return settings.__module__.split(".")[1]


def section(title: str, document: type[BaseModel], prefix: str = "") -> str:
    """A document's table under its heading, with the first paragraph of its docstring."""
    summary = " ".join((inspect.getdoc(document) or "").partition("\n\n")[0].split()).replace("<", "&lt;")
    return f"## {title}\n\n{summary}\n\n{table(document, prefix)}"


def table(document: type[BaseModel], prefix: str = "") -> str:
    """The fields of `document` as a Markdown table."""
    lines = ["| Name | Accepted | Default | Meaning |", "|---|---|---|---|"]
    said = meanings(document)
    for name, field in document.model_fields.items():
        if name == "name":  # of a document: given by its file, never written
            continue
        cells = (f"`{prefix}{name}`", accepted(field), default(field), said.get(name, ""))
        lines.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def meanings(document: type[BaseModel]) -> dict[str, str]:
    """The docstring below each field of `document`, on one line."""
    body = ast.parse(inspect.getsource(document)).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found


def accepted(field: FieldInfo) -> str:
    """What a field accepts, in words, with its bounds."""
    limits = (
        f"{words} {getattr(bound, key)}"
        for bound in field.metadata
        for key, words in BOUNDS.items()
        if hasattr(bound, key)
    )
    return ", ".join([in_words(field.annotation), *limits])


def in_words(annotation: Any) -> str:
    """A type as a reader of YAML would say it."""
    if annotation in WORDS:
        return WORDS[annotation]
    arguments = [argument for argument in typing.get_args(annotation) if argument not in (types.NoneType, ...)]
    match typing.get_origin(annotation):
        case typing.Annotated:
            return in_words(arguments[0])
        case typing.Literal:
            return " or ".join(f"`{argument}`" for argument in arguments)
        case types.UnionType | typing.Union:
            return " or ".join(dict.fromkeys(map(in_words, arguments)))
        case builtin if builtin in (tuple, list):
            return f"list of {in_words(arguments[0])}"
        case builtin if builtin is dict:
            return f"mapping of names to {in_words(arguments[1])}"
    if is_document(annotation):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    return str(annotation)


def default(field: FieldInfo) -> str:
    """The field's default as YAML, or that it has none."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or isinstance(value, BaseModel):
        return ""
    return f"`{json.dumps(TypeAdapter(Any).dump_python(value, mode='json'))}`"


def nested(documents: list[type[Document]]) -> list[type[BaseModel]]:
    """The documents inside `documents`, each once."""
    found: dict[type[BaseModel], None] = {}
    pending: list[type[BaseModel]] = list(documents)
    for document in pending:  # grows while it is walked
        for field in document.model_fields.values():
            inside = [inner for inner in parts(field.annotation) if inner not in found]
            found |= dict.fromkeys(inside)
            pending += inside
    return list(found)


def parts(annotation: Any) -> Iterator[type[BaseModel]]:
    """The documents that a type mentions."""
    if is_document(annotation):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from parts(argument)


def is_document(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
