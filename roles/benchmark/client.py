"""SGLang's own benchmark client: its command line, its environment, and what its rows mean. Pure."""

import json
import math
import re
from collections.abc import Mapping
from typing import Final, cast

from roles.benchmark.benchmark import Goodput
from roles.benchmark.rounds import Round
from roles.refusal import Refusal

MODULE: Final = "sglang.benchmark.serving"
"""`python -m` this, with the arguments of a round, is the same measurement by hand."""

ENVIRONMENT: Final[Mapping[str, str]] = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",  # the client needs no GPU, and must not take memory from the server
    "PYTHONUNBUFFERED": "1",
}

_SECRET: Final = re.compile(
    r"(api|access|secret|private)[-_]?key|password|secret|credential|[-_]token$|^token$", re.I
)

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def arguments(entry: Round, base_url: str, tokenizer: str, output: str, goodput: Goodput | None) -> list[str]:
    """The client's arguments for one round. Prompts are random token ids, sent as ids, of exact length."""
    return [
        *_common(entry, base_url, tokenizer, output),
        "--cache-report",
        *(["--goodput", *_objectives(goodput)] if goodput else []),
    ]


def rust_arguments(entry: Round, base_url: str, tokenizer: str, output: str) -> list[str]:
    """The same round by the client's Rust mode, for when the Python one is the bottleneck.

    That mode reports neither cached tokens nor goodput.
    """
    return [*_common(entry, base_url, tokenizer, output), "--rust-client"]


def _common(entry: Round, base_url: str, tokenizer: str, output: str) -> list[str]:
    point = entry.point
    options = {
        "--backend": "sglang",
        "--base-url": base_url,
        "--ready-check-timeout-sec": 0,  # readiness is known; the client would only ask whether the port is bound
        "--model": tokenizer,
        "--tokenizer": tokenizer,
        "--dataset-name": "random-ids",
        "--random-input-len": point.input_tokens,
        "--random-output-len": point.output_tokens,
        "--random-range-ratio": 1,
        "--num-prompts": point.requests,
        "--max-concurrency": point.concurrency,
        "--seed": entry.seed,
        "--output-file": output,
    }
    pairs = [text for option, value in options.items() for text in (option, str(value))]
    return [*pairs, "--tokenize-prompt", "--flush-cache", "--disable-tqdm"]


def _objectives(goodput: Goodput) -> list[str]:
    named = {"ttft": goodput.ttft_ms, "tpot": goodput.tpot_ms, "e2el": goodput.e2e_ms}
    return [f"{name}:{limit:g}" for name, limit in named.items() if limit is not None]


def parsed_row(line: str, source: str) -> dict[str, Json]:
    """One line of the client's output file as strict JSON, without the server's secrets.

    The client writes the bare words Infinity and NaN, which JSON does not know: they become null.
    Raises Refusal if the line is no JSON object.
    """
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise Refusal(f"{source}: not a row of the benchmark client: {error}") from None
    if not isinstance(row, dict):
        raise Refusal(f"{source}: not a row of the benchmark client: a {type(row).__name__}, not an object")
    row.pop("server_info", None)
    return cast(dict[str, Json], without_secrets(_finite(row)))


def _finite(value: Json) -> Json:
    match value:
        case float() if not math.isfinite(value):
            return None
        case list():
            return [_finite(item) for item in value]
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case _:
            return value


def without_secrets(value: Json) -> Json:
    """`value` with every entry whose name says that it is a key, a password or a token replaced."""
    match value:
        case dict():
            return {
                key: "(redacted)" if _SECRET.search(key) and item else without_secrets(item)
                for key, item in value.items()
            }
        case list():
            return [without_secrets(item) for item in value]
        case _:
            return value


def arguments_without_secrets(command: list[str]) -> list[str]:
    """A command line with the values of its secret options replaced."""
    secret = [bool(_SECRET.search(word)) and word.startswith("--") for word in command]
    shown = []
    for index, word in enumerate(command):
        if secret[index] and "=" in word:
            shown.append(word.partition("=")[0] + "=(redacted)")
        elif index and secret[index - 1] and "=" not in command[index - 1]:
            shown.append("(redacted)")
        else:
            shown.append(word)
    return shown
