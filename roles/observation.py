"""Read everything a role needs to know about a host in one round trip."""

from collections.abc import Mapping
from typing import Any, cast

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.api.host import Host

_MARK = "::observed:: "


class Observation(FactBase[dict[str, list[str]]]):
    """Named shell programs, run one after another by one command. A program that fails has just said less."""

    default = dict

    def command(self, programs: Mapping[str, str]) -> StringCommand:
        parts = [f"echo; echo '{_MARK}{name}'; ( {program}\n) 2>/dev/null" for name, program in programs.items()]
        return StringCommand("; ".join([*parts, "true"]))

    def process(self, output: list[str]) -> dict[str, list[str]]:
        seen: dict[str, list[str]] = {}
        lines: list[str] = []
        for line in output:
            if line.startswith(_MARK):
                lines = seen.setdefault(line.removeprefix(_MARK), [])
            else:
                lines.append(line)
        for lines in seen.values():
            while lines and not lines[-1]:
                lines.pop()
        return seen


def observe(host: Host, programs: Mapping[str, str]) -> dict[str, list[str]]:
    """Each program's lines of stdout, by its name; quote what you put into the programs (shlex.quote).

    A host that cannot be asked fails the run here, before anything is changed.
    """
    return cast(dict[str, list[str]], host.get_fact(cast(Any, Observation), programs=dict(programs)))
