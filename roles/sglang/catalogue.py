"""What a release of SGLang takes on its command line, and whether a profile's `server:` block is that. Pure.

`catalogue/<version>.json` is made by `make catalogue`; `catalogue/<version>.notes.yml` is kept by hand for what
SGLang does not tell about itself.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, cast

import yaml

from roles.refusal import Refusal, nearest

_FOLDER: Final = Path(__file__).parent / "catalogue"

_ACCEPTED: Final = {
    "flag": "true or false",
    "switch": "true or false",
    "int": "an integer",
    "size": "an integer, or text like 128k",
    "float": "a number",
    "text": "text",
    "json": "a mapping, a list, or JSON as text",
    "text or json": "text or a mapping",
}
"""By kind of flag: what a profile may say."""

_SIZE: Final = re.compile(r"\d+|\d+(\.\d+)?[kMGT]|\d+[KMGT]i")
"""What SGLang's `human_readable_int` reads (srt/utils/common.py)."""


class Flag(NamedTuple):
    """One flag, as argparse knows it. Its name is the full one, in snake case and without the dashes."""

    name: str
    type: str
    """A key of `_ACCEPTED`. `flag` is present or absent, `switch` also has a `--no-` form."""
    aliases: tuple[str, ...] = ()
    nargs: str | None = None
    """`+` and `*` take a list, `?` takes a value or none; None means one value."""
    choices: tuple[Any, ...] = ()
    default: Any = None
    required: bool = False
    deprecated: str | None = None
    """What replaces it, or "" where SGLang does not say; None if it is not deprecated."""

    @classmethod
    def read(cls, name: str, values: Mapping[str, Any]) -> Self:
        lists = {key: tuple(values[key]) for key in ("aliases", "choices") if key in values}
        return cls(name=name, **{**values, **lists})

    @property
    def option(self) -> str:
        """As on the command line: `--tp-size`."""
        return f"--{self.name.replace('_', '-')}"

    def problem(self, value: object) -> str | None:
        """Why `value` cannot be this flag's: what is accepted instead, or None if it can."""
        if self.nargs in ("+", "*"):
            if not isinstance(value, list) or (self.nargs == "+" and not value):
                return f"accepted is a list, each item {self._accepted}; not {value!r}"
            return next((self._problem(item) for item in value if self._problem(item)), None)
        if self.nargs == "?" and value is True:
            return None
        return self._problem(value)

    def _problem(self, value: object) -> str | None:
        if not _fits(self.type, value):
            return f"accepted is {self._accepted}; not {value!r}"
        if self.choices and value not in self.choices:
            return f"unknown value {value!r}; {nearest(str(value), map(str, self.choices))}"
        return None

    @property
    def _accepted(self) -> str:
        return f"one of {', '.join(map(str, self.choices))}" if self.choices else _ACCEPTED[self.type]

    def words(self, value: object) -> tuple[str, ...]:
        """The words of the command line that give this flag the `value`, which `problem` has accepted."""
        if self.type == "flag":
            return (self.option,) if value else ()
        if self.type == "switch":
            return (self.option if value else f"--no-{self.option.removeprefix('--')}",)
        if self.nargs == "?" and value is True:
            return (self.option,)
        words = tuple(_word(item) for item in value) if isinstance(value, list) and self.nargs else (_word(value),)
        if len(words) == 1 and words[0].startswith("-") and not _is_number(words[0]):
            return (f"{self.option}={words[0]}",)  # argparse would take the value for another flag
        return (self.option, *words)


class Findings(NamedTuple):
    """What is wrong with a `server:` block: one sentence each, beginning with the key."""

    errors: tuple[str, ...]
    """SGLang would refuse it, or do something else than was meant."""
    warnings: tuple[str, ...]
    """SGLang accepts it, but not for ever, or to no effect."""


class Catalogue:
    """The flags of one version of SGLang."""

    def __init__(self, version: str, flags: Mapping[str, Mapping[str, Any]], notes: Mapping[str, Any]) -> None:
        """`flags` and `notes` as the two files of a version hold them."""
        self.version = version
        self._flags = flags
        self._read: dict[str, Flag] = {}
        self._aliases = {alias: name for name, flag in flags.items() for alias in flag.get("aliases", ())}
        self._gone: Mapping[str, Mapping[str, str]] = notes.get("gone", {})
        self._values: Mapping[str, Mapping[str, str]] = {
            flag: accepted for accepted in notes.get("values", ()) for flag in accepted["flags"]
        }
        self._cautions: Iterable[Mapping[str, Any]] = notes.get("cautions", ())
        self._conflicts: Iterable[Mapping[str, Any]] = notes.get("conflicts", ())

    @classmethod
    @cache
    def load(cls, version: str) -> "Catalogue":
        """The catalogue of a version. Raises Refusal if there is none."""
        file = _FOLDER / f"{version}.json"
        if not file.is_file():
            raise Refusal(f"sglang_version: no catalogue of {version}; {nearest(version, versions())}")
        flags = json.loads(file.read_text())["flags"]
        notes = yaml.load(file.with_suffix(".notes.yml").read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return cls(version, flags, notes)

    def __getitem__(self, name: str) -> Flag:
        if name not in self._read:  # of some 500 flags a site uses 30
            self._read[name] = Flag.read(name, self._flags[name])
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self._flags

    def __iter__(self) -> Iterator[str]:
        return iter(self._flags)

    def check(self, server: Mapping[str, object], reserved: Mapping[str, str] | None = None) -> Findings:
        """Check a profile's `server:` block.

        `reserved` holds the flags that are not a profile's to set, each with what to use instead.
        """
        errors, warnings = [], []
        for name, value in server.items():
            if reserved and name in reserved:
                errors.append(f"server.{name}: not set in a profile; {reserved[name]}")
            elif name not in self._flags:
                errors.append(f"server.{name}: {self._unknown(name)}")
            elif problem := self[name].problem(value) or self._outside(name, value):
                errors.append(f"server.{name}: {problem}")
            elif (instead := self[name].deprecated) is not None:
                warnings.append(f"server.{name}: deprecated{f'; use {instead}' if instead else ''}")
        known = {name: value for name, value in server.items() if name in self._flags}
        warnings += [
            f"server.{_name(caution['flag'])}: {caution['says']}"
            for caution in self._cautions
            if self._holds(caution["flag"], known)
        ]
        errors += [
            f"server.{_name(conflict['flags'][0])}: {conflict['says']}"
            for conflict in self._conflicts
            if all(self._holds(condition, known) for condition in conflict["flags"])
        ]
        return Findings(tuple(errors), tuple(warnings))

    def flags(self, server: Mapping[str, object]) -> tuple[tuple[str, ...], ...]:
        """Each flag of the command line with its values, sorted by name; `server` has passed `check`.

        A `flag` that is false has no words, and is left out.
        """
        words = (self[name].words(value) for name, value in sorted(server.items()))
        return tuple(flag for flag in words if flag)

    def _unknown(self, name: str) -> str:
        """Why a name that is no flag's full name is not accepted."""
        if gone := self._gone.get(name):
            return f"gone from SGLang {self.version}; {gone['instead']}"
        if name in self._aliases:
            return f"another name of {self._aliases[name]}; use that one"
        positive = name.removeprefix("no_")
        if positive != name and positive in self._flags and self[positive].type == "switch":
            return f"write {positive}: false"
        if longer := [flag for flag in self._flags if flag.startswith(name)]:
            return f"not a full name; SGLang {self.version} has {', '.join(longer[:5])}"
        return f"SGLang {self.version} has no such flag; {_nearest_name(name, self._flags)}"

    def _outside(self, name: str, value: object) -> str | None:
        """Why a value of the right type is still not one that SGLang can work with."""
        accepted = self._values.get(name)
        if accepted is None or re.fullmatch(accepted["match"], str(value)):
            return None
        return f"accepted is {accepted['says']}; not {value!r}"

    def _holds(self, condition: str, server: Mapping[str, object]) -> bool:
        """Whether `server` changes a flag from its default: `pp_size`, or to certain values: `device=cpu|xpu`."""
        name, _, values = condition.partition("=")
        if name not in server or server[name] == (self[name].default or False):
            return False
        return not values or str(server[name]) in values.split("|")


def versions() -> list[str]:
    """The versions of SGLang that there is a catalogue of."""
    return sorted(file.stem for file in _FOLDER.glob("*.json"))


def _name(condition: str) -> str:
    return condition.partition("=")[0]


def _nearest_name(name: str, flags: Iterable[str]) -> str:
    """The nearest flag; a list of all 500 would help nobody."""
    hint = nearest(name, flags)
    return hint if hint.startswith("did you mean") else "its `sglang serve --help` lists all"


def _fits(kind: str, value: object) -> bool:
    if isinstance(value, bool):
        return kind in ("flag", "switch")
    match kind:
        case "int":
            return isinstance(value, int)
        case "size":
            return isinstance(value, int) or (isinstance(value, str) and bool(_SIZE.fullmatch(value)))
        case "float":
            return isinstance(value, int | float)
        case "text":
            return isinstance(value, str)
        case "text or json":
            return isinstance(value, str | dict)
        case "json":
            return isinstance(value, dict | list) or (isinstance(value, str) and _is_json(value))
        case _:
            return False


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _is_number(word: str) -> bool:
    return word.removeprefix("-").replace(".", "", 1).isdecimal()


def _word(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(cast(Any, value), separators=(",", ":"), sort_keys=True)
