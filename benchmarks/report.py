"""results.md, from what was measured."""

import os
import platform
import re
from collections.abc import Iterable, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Final

from benchmarks.samples import Comparison

RESULTS: Final = Path(__file__).with_name("results.md")

_HEAD: Final = """# How fast Slipway is

Written by `make bench` on {day}: {processor}, {cpus} CPUs shared by the controller and the lab host that it
deploys to over SSH; Linux {kernel}, Python {python}, pyinfra {pyinfra}, ansible-core {ansible} with pipelining,
Mitogen {mitogen}.

Times are medians of {runs} runs, in seconds, with the fastest and the slowest run; the tools took turns. A ratio is
Slipway's time as a share of the other's.
"""


def report(parts: Iterable[tuple[str, str, Sequence[Comparison]]]) -> str:
    """The text; a part has a title, a paragraph on what is measured, and comparisons."""
    comparisons = list(parts)
    counts = {len(seconds) for _, _, found in comparisons for one in found for seconds in one.seconds.values()}
    text = _HEAD.format(
        day=date.today(),
        processor=_processor(),
        cpus=os.cpu_count(),
        kernel=platform.release().split("-")[0],
        python=platform.python_version(),
        pyinfra=version("pyinfra"),
        ansible=version("ansible-core"),
        mitogen=version("mitogen"),
        runs=" or ".join(map(str, sorted(counts))),
    )
    for title, paragraph, found in comparisons:
        text += f"\n## {title}\n\n{paragraph}\n\n{_table(found)}"
    return text


def _table(found: Sequence[Comparison]) -> str:
    tools = list(found[0].seconds)
    others = tools[1:]
    head = ["", *tools, *(f"to {other}" for other in others), *(["goal"] if any(one.goals for one in found) else [])]
    rows = [head, ["---", *["---:"] * (len(head) - 1)]]
    for one in found:
        row = [one.what, *(_time(one, tool) for tool in tools), *(f"{one.share(other):.2f}x" for other in others)]
        rows.append([*row, *([_goals(one)] if "goal" in head else [])])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _time(one: Comparison, tool: str) -> str:
    seconds = one.seconds[tool]
    return f"{one.median(tool):.2f} ({min(seconds):.2f} to {max(seconds):.2f})"


def _goals(one: Comparison) -> str:
    return ", ".join(f"{goal}: {'met' if one.meets(goal) else 'missed'}" for goal in one.goals)


def _processor() -> str:
    found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()
