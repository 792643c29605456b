"""What the measuring program wrote, read back. Pure."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from pydantic import JsonValue

from roles.benchmark.record import Row
from roles.refusal import Refusal

COMPLETE: Final = "complete"
"""How the output of a measurement ends that came to its end."""


@dataclass
class Output:
    """Everything in one run's output, as far as it got."""

    environment: dict[str, JsonValue] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    end: str | None = None
    """COMPLETE, or why it ended early; None if it was ended before it could say so."""
    log: tuple[str, ...] = ()
    server: dict[str, JsonValue] = field(default_factory=dict)
    """The server's `/server_info` after the last round."""


def read_output(lines: Iterable[str], source: str) -> Output:
    """Raises Refusal for what the program cannot have written; a last line that was cut off is passed over."""
    output = Output()
    given = list(lines)
    for number, text in enumerate(given, start=1):
        try:
            _take(output, strict(text, source))
        except Refusal:
            if number < len(given) or output.end is not None:
                raise
    return output


def _take(output: Output, line: dict[str, JsonValue]) -> None:
    match line:
        case {"environment": dict(environment)}:
            output.environment = environment
        case {"end": str(end)}:
            output.end = end
            log, server = line.get("log"), line.get("server")
            output.log = tuple(map(str, log)) if isinstance(log, list) else ()
            output.server = server if isinstance(server, dict) else {}
        case _:
            output.rows.append(Row.read(line, "output of the benchmark"))


def strict(text: str, source: str) -> dict[str, JsonValue]:
    """A line as strict JSON.

    SGLang's client writes the bare words Infinity and NaN, which JSON does not know: they become null.
    Raises Refusal if the line is no JSON object.
    """
    try:
        line = json.loads(text)
    except json.JSONDecodeError as error:
        raise Refusal(f"{source}: not a line of the measuring program: {error}") from None
    if not isinstance(line, dict):
        raise Refusal(f"{source}: not a line of the measuring program: a {type(line).__name__}, not an object")
    return {key: _finite(value) for key, value in line.items()}


def _finite(value: JsonValue) -> JsonValue:
    match value:
        case float() if not math.isfinite(value):
            return None
        case list():
            return [_finite(item) for item in value]
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case _:
            return value


def memory(server: dict[str, JsonValue]) -> dict[str, float]:
    """GiB per GPU, and tokens, as the server's schedulers report them: weights, KV cache and graphs of the one
    that has most, and the token capacity of the one that has least."""
    states = server.get("internal_states")
    usages = [
        usage
        for state in (states if isinstance(states, list) else [])
        if isinstance(state, dict) and isinstance(usage := state.get("memory_usage"), dict)
    ]
    if not usages:
        return {}
    largest = {
        "weights_gib": max(_number(usage.get("weight")) for usage in usages),
        "kv_cache_gib": max(_number(usage.get("kvcache")) for usage in usages),
        "graphs_gib": max(_total(usage.get("graph")) for usage in usages),
        "free_when_ready_gib": min(_number(usage.get("startup_available")) for usage in usages),
    }
    return {**largest, "kv_cache_tokens": min(_number(usage.get("token_capacity")) for usage in usages)}


def _number(value: JsonValue) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _total(value: JsonValue) -> float:
    return sum(map(_number, value.values())) if isinstance(value, dict) else 0.0
