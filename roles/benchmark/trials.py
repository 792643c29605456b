"""What a sweep tries: profiles as listed, and variations of a base profile by its knobs. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Final, NamedTuple

from roles.benchmark.rounds import Mode
from roles.refusal import Refusal
from roles.serve.command import RESERVED
from roles.serve.profile import Profile
from roles.sglang.catalogue import Catalogue

PARALLELISM: Final = "parallelism"
"""A knob whose values are several of the server's flags at once."""


class Trial(NamedTuple):
    """One profile to try."""

    profile: Profile
    changes: Mapping[str, object]
    """What makes it differ from the base, by knob; empty for the base and for a listed profile."""

    @property
    def name(self) -> str:
        return self.profile.name


def trials(
    base: Profile, vary: Mapping[str, object], listed: Sequence[Profile], mode: Mode, catalogue: Catalogue
) -> list[Trial]:
    """Listed profiles first, then what `vary` makes of the base.

    An ablation tries the base, each change alone, and the first value of every knob together, so that each
    knob's own effect is known. A grid tries every combination. Raises Refusal for a knob that is none, for a
    value that `catalogue` does not know, and for two trials of one name.
    """
    found = [Trial(profile, {}) for profile in listed]
    knobs = {knob: _values(knob, values, catalogue) for knob, values in vary.items()}
    if knobs:
        choices = _ablation(knobs) if mode == "ablation" else _grid(knobs)
        found += [Trial(_varied(base, changes), changes) for changes in choices]
    unique: dict[str, Trial] = {}
    for trial in found:
        unique.setdefault(trial.profile.model_dump_json(exclude={"name", "description"}), trial)
    names = [trial.name for trial in unique.values()]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise Refusal(f"vary: two trials would be called {twice}; write values that differ in letters or digits")
    return list(unique.values())


def _values(knob: str, values: object, catalogue: Catalogue) -> list[object]:
    if not isinstance(values, list) or not values:
        raise Refusal(f"vary: {knob}: takes a list of values, not {values!r}")
    problems = [error for value in values for error in catalogue.check(_flags(knob, value), RESERVED).errors]
    if problems:
        raise Refusal("\n".join(f"vary: {problem}" for problem in dict.fromkeys(problems)))
    return values


def _flags(knob: str, value: object) -> Mapping[str, object]:
    """The server's flags that a value of this knob sets whole."""
    if knob == PARALLELISM:
        return value if isinstance(value, dict) else {}
    block, _, flag = knob.partition(".")
    return {flag: value} if block == "server" and "." not in flag else {}


def _ablation(knobs: Mapping[str, Sequence[object]]) -> Iterator[dict[str, object]]:
    yield {}
    for knob, values in knobs.items():
        for value in values:
            yield {knob: value}
    if len(knobs) > 1:
        yield {knob: values[0] for knob, values in knobs.items()}


def _grid(knobs: Mapping[str, Sequence[object]]) -> Iterator[dict[str, object]]:
    for combination in product(*knobs.values()):
        yield dict(zip(knobs, combination, strict=True))


def _varied(base: Profile, changes: Mapping[str, object]) -> Profile:
    """The base with each knob set. A knob is a key of the profile, such as `server.max_running_requests`."""
    if not changes:
        return base
    values = base.model_dump()
    for knob, value in changes.items():
        _set(values, knob, value)
    suffix = ".".join(_slug(knob, value) for knob, value in changes.items())
    values |= {"name": f"{base.name}.{suffix}", "reference": (), "findings": ()}
    floors = [floor for floor in values["benchmark"]["floors"] if floor["share_of_reference"] is None]
    values["benchmark"]["floors"] = floors  # the reference is the base's own
    values["description"] = f"{base.name} with " + ", ".join(f"{knob}={value}" for knob, value in changes.items())
    return Profile.read(values, "vary")


def _set(values: dict[str, object], knob: str, value: object) -> None:
    if knob == PARALLELISM:
        if not isinstance(value, dict):
            raise Refusal(f"vary: parallelism: takes flags such as {{tp_size: 8, ep_size: 8}}, not {value!r}")
        for flag, size in value.items():
            _set(values, f"server.{flag}", size)
        return
    *path, leaf = knob.split(".")
    block: object = values
    for part in path:
        block = block.get(part) if isinstance(block, dict) else None
    if not path or not isinstance(block, dict):
        raise Refusal(
            f"vary: {knob}: no key of a profile that can vary; accepted are parallelism, server.<flag>, "
            "environment.<name> and benchmark.<key>"
        )
    block[leaf] = value


def _slug(knob: str, value: object) -> str:
    """A part of a unit's name: letters, digits and `:-_.` only."""
    text = "-".join(f"{k}-{v}" for k, v in value.items()) if isinstance(value, dict) else f"{knob}-{value}"
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text.removeprefix("server.").removeprefix("environment."))
