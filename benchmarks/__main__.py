"""python -m benchmarks [PART…]: measure, and write results.md from all that was measured so far."""

import json
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from dataclasses import asdict
from inspect import cleandoc
from typing import Final, NamedTuple

from benchmarks import alone, parts
from benchmarks.report import RESULTS, report
from benchmarks.samples import Comparison, Goal
from tests.lab.places import LAB

_KEPT: Final = LAB / "benchmarks"


class Part(NamedTuple):
    """A section of results.md; what it says of it is the docstring of what measures it."""

    title: str
    measure: Callable[[int], Iterator[Comparison]]
    needs_host: bool = True


PARTS: Final = {
    "nothing-to-do": Part("Nothing to do", parts.nothing_to_do),
    "many-hosts": Part("Nothing to do, on many hosts", parts.many_hosts),
    "one-value": Part("One value changed", parts.one_value),
    "from-bare": Part("A bare host", parts.from_bare, needs_host=False),
    "loading": Part("Slipway's own imports", alone.loading, needs_host=False),
    "planning": Part("A plan", alone.planning, needs_host=False),
    "installing": Part("Installing a release", alone.installing),
    "fetching": Part("Fetching weights", alone.fetching, needs_host=False),
}


def main() -> None:
    parser = ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all if none is named")
    parser.add_argument("--runs", type=int, default=5, help="of each tool, 5 by default")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - PARTS.keys():
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    names = arguments.parts or list(PARTS)
    if any(PARTS[name].needs_host for name in names):
        parts.prepare()
    _KEPT.mkdir(parents=True, exist_ok=True)
    for name in names:
        found = [asdict(comparison) for comparison in PARTS[name].measure(arguments.runs)]
        (_KEPT / f"{name}.json").write_text(json.dumps(found))
    measured = ((part, _kept(name)) for name, part in PARTS.items())
    RESULTS.write_text(report((part.title, _paragraph(part), kept) for part, kept in measured if kept))
    print(RESULTS)


def _kept(name: str) -> list[Comparison]:
    """What was measured of a part, by this run or an earlier one."""
    file = _KEPT / f"{name}.json"
    found = json.loads(file.read_text()) if file.exists() else []
    return [Comparison(one["what"], one["seconds"], [Goal(**goal) for goal in one["goals"]]) for one in found]


def _paragraph(part: Part) -> str:
    return cleandoc(part.measure.__doc__ or "")


if __name__ == "__main__":
    main()
