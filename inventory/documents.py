"""Models and profiles: typed documents, one file each."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from inventory.problems import Problems
from inventory.site import PREVIOUS
from inventory.text import control_characters
from inventory.yamlfile import read_mapping, shown
from roles.refusal import Refusal, nearest
from roles.serve.command import RESERVED
from roles.serve.profile import Profile, extended
from roles.sglang.catalogue import Catalogue
from roles.weights.model import Model

_NAME: Final = r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?"


def read_models(files: Mapping[str, Path], problems: Problems) -> dict[str, Model]:
    """The models that can be read; what is wrong with the others goes to `problems`."""
    models = {}
    for name, values in _read(files, problems).items():
        with problems.collecting():
            models[name] = Model.read({**values, "name": name}, shown(files[name]))
    return models


def read_profiles(
    files: Mapping[str, Path], models: Mapping[str, Path], problems: Problems, catalogues: Iterable[Catalogue] = ()
) -> dict[str, Profile]:
    """The profiles that can be read, what they extend resolved.

    `models` are the names they may use; `catalogues` those of the releases that must know their flags.
    """
    written = _read(files, problems)
    profiles = {}
    for name in written:
        with problems.collecting():
            source = shown(files[name])
            profile = Profile.read({**_resolved(name, written, files), "name": name}, source)
            profiles[name] = profile
            for key, model in (("model", profile.model), ("draft", profile.draft)):
                if model is not None and model not in models:
                    problems.add(f"{source}: {key}: unknown model {model}; {nearest(model, models)}")
    parents = {name: str(values.get("extends")) for name, values in written.items()}
    for catalogue in catalogues:
        for name, errors in _flag_errors(profiles, parents, catalogue).items():
            for error in errors:
                problems.add(f"{shown(files[name])}: {error}")
    return profiles


def _flag_errors(
    profiles: Mapping[str, Profile], parents: Mapping[str, str], catalogue: Catalogue
) -> dict[str, list[str]]:
    """What is wrong with the `server:` block of each profile, but for what was inherited: that is in another file."""
    found = {name: catalogue.check(profile.server, RESERVED).errors for name, profile in profiles.items()}
    return {
        name: [error for error in errors if error not in found.get(parents[name], ())]
        for name, errors in found.items()
    }


def _read(files: Mapping[str, Path], problems: Problems) -> dict[str, dict[str, object]]:
    read = {}
    for name, path in files.items():
        if not re.fullmatch(_NAME, name) or name == PREVIOUS:
            problems.add(
                f"{shown(path)}: not accepted as a name; use small letters, digits, dots and hyphens, "
                f"and not the word {PREVIOUS}"
            )
            continue
        with problems.collecting():
            values = read_mapping(path)
            if "name" in values:
                raise Refusal(f"{shown(path)}: name: not accepted, because it is the file's name")
            for key, value in values.items():
                for wrong in control_characters(value, key):
                    problems.add(f"{shown(path)}: {wrong}")
            read[name] = values
    return read


def _from_first(circle: Sequence[str]) -> str:
    """A circle of names, its last the same as its first, told the same way wherever it was entered."""
    names = circle[:-1]
    first = names.index(min(names))
    return " -> ".join([*names[first:], *names[:first], names[first]])


def _resolved(name: str, written: Mapping[str, Mapping[str, object]], files: Mapping[str, Path]) -> dict[str, object]:
    """A profile's values on top of its parent's, and so on up. Raises Refusal for a parent that cannot be."""
    line = [name]
    while (parent := written[line[-1]].get("extends")) is not None:
        source = shown(files[line[-1]])
        if parent == line[-1]:
            raise Refusal(
                f"{source}: extends: {parent} is this profile itself, "
                "as a site's replaces the shipped one of its name; give it a name of its own"
            )
        if parent in line:
            circle = [*line[line.index(parent) :], parent]
            raise Refusal(f"{shown(files[min(circle)])}: extends: goes in a circle: {_from_first(circle)}")
        if not isinstance(parent, str) or parent not in files:
            raise Refusal(f"{source}: extends: unknown profile {parent}; {nearest(str(parent), files)}")
        if parent not in written:
            raise Refusal(f"{shown(files[name])}: extends: {parent} cannot be read")
        line.append(parent)
    values: dict[str, object] = {}
    for ancestor in reversed(line):
        own = {key: value for key, value in written[ancestor].items() if key != "extends"}
        values = extended(own, values)
    return values
