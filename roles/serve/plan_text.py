"""A plan as text for a person and as JSON for a program. Pure."""

import json
from collections.abc import Iterable, Sequence
from io import StringIO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from roles.preflight.hardware import Hardware
from roles.serve.buffers import GIB
from roles.serve.memory import Verdict
from roles.serve.plan import Choice, Measured, Plan, Row

WIDE = 100
"""Columns of the terminal from which every figure has a column of its own."""

_WIDE_HEADINGS = (
    *("\nGPUs", "weights\nGiB", "KV\ntokens", "full\ncontext", "ceiling\nC=1", "ceiling\nfull"),
    *("measured\ntok/s", "load\nmin"),
)
_NARROW_HEADINGS = (
    "\nGPUs",
    "\nGiB",
    "KV\ntokens",
    "full\nctx",
    "ceil\nC=1",
    "ceil\nfull",
    "measured\ntok/s",
    "load\nmin",
)

_LEGEND = (
    "GiB: weights on each GPU; full context: requests of the longest context that the KV cache holds; ceiling: "
    "output tok/s that one request (C=1) and a full server cannot exceed; measured: the most in the last benchmark, "
    "and its share of the ceiling; load: from start to ready."
)

_ALL = Text(
    "`pyinfra INVENTORY deploy.py --dry` lists every operation, those on the system and the driver too.", "dim"
)

_STYLES = {Verdict.OK: "green", Verdict.TIGHT: "yellow", Verdict.NO: "red"}


def as_text(plans: Iterable[Plan], width: int, *, colour: bool = False) -> str:
    """For each host what it is, a table of the profiles, why others do not suit, and what a deploy would do."""
    console = Console(
        file=StringIO(), width=width, force_terminal=colour, no_color=not colour, highlight=False, soft_wrap=False
    )
    for index, plan in enumerate(plans):
        if index:
            console.print()
        console.print(_host(plan, width))
    assert isinstance(console.file, StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def _host(plan: Plan, width: int) -> Group:
    parts: list[RenderableType] = [Text(f"{plan.host}: {_hardware(plan.hardware)}", "bold")]
    if plan.unreachable is not None:
        parts.append(Text(f"Not reached, planned from its variables alone: {plan.unreachable}", "yellow"))
    shown = [row for row in plan.rows if row.memory is not None or not row.reasons]
    if shown:
        parts += [Text(), _table(shown, plan.choice, width), Text(_LEGEND, "dim")]
    if exact := [row for row in plan.rows if row.exact is not None]:
        parts += [Text(), Text("On each GPU, by SGLang's own code:"), _exact_table(exact)]
        parts += [Text(f"SGLang would not start {name}: {refusal}") for name, refusal in _refused(exact)]
    if plan.inexact is not None:
        parts += [Text(), Text(f"No exact figures: {plan.inexact}", "yellow")]
    if unsuitable := _unsuitable(plan.rows):
        parts += [Text(), *unsuitable]
    return Group(*parts, Text(), *_choice(plan.choice))


def _hardware(hardware: Hardware | None) -> str:
    if hardware is None:
        return "hardware not declared"
    if not hardware.gpus:
        return "no GPU"
    name = hardware.gpu or "GPU"
    return f"{hardware.gpus} x {name}, {hardware.memory_mib / 1024:.0f} GiB, {hardware.link.replace('pcie', 'PCIe')}"


def _table(rows: Sequence[Row], choice: Choice, width: int) -> Table:
    wide = width >= WIDE
    grid = Table(box=None, padding=(0, 2 if wide else 1, 0, 0), header_style="dim")
    grid.add_column("\nprofile", no_wrap=True)
    grid.add_column("\nfits", no_wrap=True)
    for heading in _WIDE_HEADINGS if wide else _NARROW_HEADINGS:
        grid.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        chosen = row.profile in choice.profiles
        name = Text(("* " if chosen else "  ") + row.profile, "bold" if chosen else "")
        grid.add_row(name, _fits(row), *_figures(row, wide))
    return grid


def _fits(row: Row) -> Text:
    verdict = Verdict.NO if row.reasons else Verdict.OK if row.memory is None else row.memory.verdict
    return Text(verdict, _STYLES[verdict])


def _figures(row: Row, wide: bool) -> list[Text]:
    memory = row.memory
    full = _rounded(row.full_ceiling)
    if wide and row.full_requests is not None:
        full += f" @{row.full_requests}"
    return [
        Text(str(row.gpus or "-")),
        Text("-" if memory is None else f"{memory.weights / GIB:.1f}"),
        Text("-" if memory is None else _thousands(memory.tokens)),
        Text("-" if row.requests_at_context is None else f"{row.requests_at_context:.1f}"),
        Text(_rounded(row.single_ceiling)),
        Text(full),
        _measured(row.measured, wide),
        Text(f"{row.load_seconds / 60:.0f}" if row.load_seconds >= 120 else f"{row.load_seconds / 60:.1f}"),
    ]


def _exact_table(rows: Sequence[Row]) -> Table:
    """The estimate beside what SGLang's own code says."""
    grid = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    grid.add_column("\nprofile", no_wrap=True)
    for heading in ("weights\nGiB", "\nestimated", "\ndifference", "KV bytes\nper token", "\nestimated"):
        grid.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        if row.exact is None or row.memory is None or row.exact.refusal:
            continue
        exact, memory = row.exact, row.memory
        grid.add_row(
            f"  {row.profile}",
            f"{exact.weights / GIB:.2f}",
            f"{memory.weights / GIB:.2f}",
            f"{round(memory.weights / exact.weights - 1, 4) + 0:+.2%}",
            f"{exact.kv_bytes_per_token:,}",
            f"{memory.kv_bytes_per_token:,}",
        )
    return grid


def _refused(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """The profiles that SGLang's own code refuses, with its words."""
    return [(row.profile, row.exact.refusal) for row in rows if row.exact is not None and row.exact.refusal]


def _measured(measured: Measured | None, wide: bool) -> Text:
    if measured is None:
        return Text("-")
    share = "" if measured.share_of_ceiling is None else f" {measured.share_of_ceiling:.0%}"
    text = f"{measured.tokens_per_second:,.0f}" + (f" @{measured.concurrency}{share}" if wide else share)
    return Text(text, "" if measured.accepted else "red")


def _unsuitable(rows: Sequence[Row]) -> list[Text]:
    """Each reason once, with the profiles that it holds for."""
    by_reason: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        if row.reasons:
            by_reason.setdefault(row.reasons, []).append(row.profile)
    return [
        Text(f"Not for this host: {', '.join(names)}: {'; '.join(reasons)}") for reasons, names in by_reason.items()
    ]


def _choice(choice: Choice) -> list[RenderableType]:
    names = ", ".join(choice.profiles)
    warnings: list[RenderableType] = [Text(f"Warning: {warning}", "yellow") for warning in choice.warnings]
    if choice.refusals:
        return [Text(f"A deploy would refuse {names}:", "bold red"), *map(_item, choice.refusals), *warnings]
    if choice.changes is None:
        return [Text(f"A deploy would serve {names}; what it would change is not known.", "bold"), *warnings]
    if not choice.changes:
        text = f"{names} is served as declared: a deploy would leave the server alone."
        return [Text(text, "bold green"), *warnings, _ALL]
    downtime = f"about {_duration(choice.downtime_seconds)}" if choice.downtime_seconds else "none"
    if choice.exchange_seconds:
        downtime += f", and at most {_duration(choice.exchange_seconds)} more while the GPUs exchange values"
    return [
        Text(f"For {names} a deploy would", "bold"),
        *map(_item, choice.changes),
        Text(f"Expected downtime: {downtime}.", "bold"),
        *warnings,
        _ALL,
    ]


def _item(text: str) -> Padding:
    return Padding(Text(f"- {text}"), (0, 0, 0, 2))


def _rounded(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _thousands(tokens: int) -> str:
    return f"{tokens / 1e6:.1f}M" if tokens >= 1e6 else f"{tokens // 1000}k"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def as_json(plans: Iterable[Plan]) -> str:
    """{"ok": bool, "hosts": {name: {"ok", "hardware", "unreachable", "profiles": [...], "inexact", "chosen": {...}}}}

    Bytes, tokens, seconds and tokens per second; null where something is not known.
    """
    hosts = {plan.host: _host_document(plan) for plan in plans}
    return json.dumps({"ok": all(host["ok"] for host in hosts.values()), "hosts": hosts}, indent=2)


def _host_document(plan: Plan) -> dict[str, object]:
    choice = plan.choice
    return {
        "ok": not choice.refusals,
        "hardware": plan.hardware and plan.hardware.model_dump(),
        "unreachable": plan.unreachable,
        "profiles": [_row_document(row) for row in plan.rows],
        "inexact": plan.inexact,
        "chosen": {
            "profiles": choice.profiles,
            "refusals": choice.refusals,
            "warnings": choice.warnings,
            "changes": choice.changes,
            "downtime_seconds": choice.downtime_seconds,
            "exchange_seconds": choice.exchange_seconds,
        },
    }


def _row_document(row: Row) -> dict[str, object]:
    memory = row.memory
    return {
        "profile": row.profile,
        "description": row.description,
        "suits": not row.reasons,
        "reasons": row.reasons,
        "gpus": row.gpus,
        "memory": memory
        and {
            "verdict": memory.verdict,
            "breaks": memory.breaks,
            "change": memory.change and {"flag": memory.change.flag, "direction": memory.change.direction},
            "mem_fraction_static": memory.mem_fraction_static,
            "feasible": _interval(memory.feasible.low, memory.feasible.high),
            "safe": _interval(memory.safe.low, memory.safe.high),
            "weights_bytes": memory.weights,
            "kv_bytes_per_token": memory.kv_bytes_per_token,
            "kv_tokens": memory.tokens,
            "context_length": memory.context_length,
            "buffers_bytes": {buffer.name: buffer.bytes for buffer in memory.buffers},
        },
        "requests_at_context": row.requests_at_context,
        "ceiling": {"single": row.single_ceiling, "full": row.full_ceiling, "full_requests": row.full_requests},
        "measured": row.measured
        and {
            "tokens_per_second": row.measured.tokens_per_second,
            "concurrency": row.measured.concurrency,
            "traffic": row.measured.traffic,
            "accepted": row.measured.accepted,
            "share_of_ceiling": row.measured.share_of_ceiling,
        },
        "load_seconds": row.load_seconds,
        "exact": row.exact
        and {
            "refusal": row.exact.refusal or None,
            "weights_bytes": row.exact.weights,
            "kv_bytes_per_token": row.exact.kv_bytes_per_token,
        },
    }


def _interval(low: float, high: float) -> list[float] | None:
    """Null if it is empty."""
    return [low, high] if low <= high else None
