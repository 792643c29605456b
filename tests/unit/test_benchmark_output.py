"""What the measuring program wrote, read back; and what it must never let out."""

import json

import pytest
from pydantic import JsonValue

from roles.benchmark.output import memory, read_output
from roles.benchmark.program import without_secrets
from roles.refusal import Refusal
from tests.unit.benchmark_records import point, row

ROW = row(point(), 1, 100.0).model_dump_json()
END = json.dumps({"end": "complete", "server": {}})


def test_infinity_and_nan_of_the_client_become_null() -> None:
    text = ROW.replace('"completed":32', '"completed":32,"request_rate":Infinity,"accept_length":NaN')
    (read,) = read_output([text, END], "x").rows
    assert read.result is not None
    assert read.result["request_rate"] is None
    assert read.result["accept_length"] is None
    assert read.value("output_throughput") == 100.0


def test_a_last_line_that_was_cut_off_is_passed_over() -> None:
    output = read_output([ROW, ROW[: len(ROW) // 2]], "x")
    assert len(output.rows) == 1
    assert output.end is None


@pytest.mark.parametrize("broken", ['{"round": ', "[]", '{"colour": "blue"}'])
def test_a_broken_line_before_the_end_is_refused(broken: str) -> None:
    with pytest.raises(Refusal):
        read_output([broken, END], "x")


def test_an_early_end_says_why_and_shows_the_log() -> None:
    output = read_output([json.dumps({"end": "stalled", "log": ["one", "two"], "server": {}})], "x")
    assert (output.end, output.log) == ("stalled", ("one", "two"))


def test_memory_is_that_of_the_rank_that_has_most_and_the_fewest_tokens() -> None:
    def state(weight: float, tokens: int) -> JsonValue:
        return {
            "memory_usage": {
                "weight": weight,
                "kvcache": 20.0,
                "startup_available": 9.3,
                "token_capacity": tokens,
                "graph": {"decode": 0.5, "prefill": 1.0},
            }
        }

    assert memory({"internal_states": [state(57.0, 1000), state(58.0, 900)]}) == {
        "weights_gib": 58.0,
        "kv_cache_gib": 20.0,
        "graphs_gib": 1.5,
        "free_when_ready_gib": 9.3,
        "kv_cache_tokens": 900,
    }
    assert memory({}) == {}


def test_secrets_are_replaced_wherever_they_stand_and_nothing_else_is() -> None:
    info = {
        "api_key": "opensesame",
        "internal_states": [{"hf_token": "hunter2", "ssl_keyfile_password": "swordfish", "max_total_tokens": 8192}],
        "aws_secret_access_key": "xyzzy",
        "launch_command": "sglang serve --max-total-tokens 8192 --api-key opensesame --admin-api-key=plugh --port 1",
        "tokenizer_path": "/models/tiny",
        "ssl_keyfile": None,
    }
    shown = json.dumps(without_secrets(info))
    for secret in ("opensesame", "hunter2", "swordfish", "xyzzy", "plugh"):
        assert secret not in shown
    assert "--max-total-tokens 8192 --api-key (redacted) --admin-api-key=(redacted) --port 1" in shown
    assert "/models/tiny" in shown
    assert without_secrets({"a": [1, None, True, "text"]}) == {"a": [1, None, True, "text"]}
