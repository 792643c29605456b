"""SGLang's own benchmark client: its environment and its command lines. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from pydantic import JsonValue

from roles.benchmark.benchmark import Benchmark, Goodput
from roles.benchmark.gate import BUSY_CLIENT
from roles.benchmark.rounds import Level, Round, repeats, warm_ups

MODULE: Final = "sglang.benchmark.serving"
"""`python -m` this, with the arguments of a round, is the same measurement by hand."""

AGREEMENT: Final = 0.05
"""Two rounds of the warm-up agree if their throughput differs by no more than this share."""

ENVIRONMENT: Final[Mapping[str, str]] = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",  # the client needs no GPU, and must not take memory from the server
    "PYTHONUNBUFFERED": "1",
}


class Subject(NamedTuple):
    """Where the server is and what the client needs; all paths are on the host."""

    base_url: str
    tokenizer: str
    """Directory of the model."""
    directory: str
    """Where the plan, the output and the client's log are while it measures."""

    @property
    def rows(self) -> str:
        """What the client writes."""
        return f"{self.directory}/client.jsonl"

    @property
    def output(self) -> str:
        return f"{self.directory}/output.jsonl"


def plan(subject: Subject, benchmark: Benchmark, level: Level, round_limit: int) -> dict[str, JsonValue]:
    """What program.py is to do: the rounds in their order, each with the client's arguments."""

    def entry(one: Round) -> JsonValue:
        return {
            "round": one.model_dump(mode="json"),
            "arguments": [*arguments(one, subject, benchmark.goodput)],
            "rust_arguments": [*_common(one, subject), "--rust-client"],
        }

    return {
        "module": MODULE,
        "base_url": subject.base_url,
        "output": subject.output,
        "round_limit": round_limit,
        "agreement": AGREEMENT,
        "busy_client": BUSY_CLIENT,
        "warm_ups": [[entry(one) for one in series] for series in warm_ups(benchmark, level)],
        "rounds": [entry(one) for one in repeats(benchmark, level)],
    }


def arguments(one: Round, subject: Subject, goodput: Goodput | None) -> list[str]:
    """What follows `python -m` MODULE for a round."""
    return [*_common(one, subject), *_reports(goodput)]


def _common(one: Round, subject: Subject) -> list[str]:
    """Prompts are random token ids of exact length, sent as ids."""
    point = one.point
    options = {
        "--backend": "sglang",
        "--base-url": subject.base_url,
        "--ready-check-timeout-sec": 0,  # the client would only ask whether the port is bound
        "--model": subject.tokenizer,
        "--tokenizer": subject.tokenizer,
        "--dataset-name": "random-ids",
        "--random-input-len": point.input_tokens,
        "--random-output-len": point.output_tokens,
        "--random-range-ratio": 1,
        "--num-prompts": point.requests,
        "--max-concurrency": point.concurrency,
        "--seed": one.seed,
        "--output-file": subject.rows,
    }
    pairs = [text for option, value in options.items() for text in (option, str(value))]
    return [*pairs, "--tokenize-prompt", "--flush-cache", "--disable-tqdm"]


def _reports(goodput: Goodput | None) -> list[str]:
    """What the client's Rust mode cannot report."""
    if goodput is None:
        return ["--cache-report"]
    named = {"ttft": goodput.ttft_ms, "tpot": goodput.tpot_ms, "e2el": goodput.e2e_ms}
    objectives = [f"{name}:{limit:g}" for name, limit in named.items() if limit is not None]
    return ["--cache-report", "--goodput", *objectives]
