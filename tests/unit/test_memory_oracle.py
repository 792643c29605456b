"""The estimate agrees with SGLang's own code: every shipped profile, and a grid of parallel sizes over more models.

The table is made by `make oracle` from an installed release; see tests/oracle.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from roles.serve.memory import estimate
from tests.oracle.cases import HOST, Case, cases

TABLE = json.loads((Path(__file__).parent / "data" / "oracle-0.5.23.json").read_text())
WEIGHTS_BAND = 0.005
PARTS_BAND = 0.005
SCALARS = 2_000_000
"""Bytes of per-tensor scalars that the estimate leaves out."""

CASES = {case.name: case for case in cases()}


@cache
def answers() -> dict[str, dict[int, Any]]:
    found: dict[str, dict[int, Any]] = {}
    for answer in TABLE["answers"]:
        found.setdefault(answer["name"], {})[answer["rank"]] = answer
    return found


def test_every_case_was_asked() -> None:
    assert set(answers()) == set(CASES)


def test_sglang_accepts_every_case() -> None:
    refused = {name: a["refusal"] for name, ranks in answers().items() for a in ranks.values() if a["refusal"]}
    assert refused == {}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_agrees_with_the_oracle(case: Case) -> None:
    estimated = estimate(case.model, case.profile, HOST, case.draft)
    tp = int(str(case.profile.server.get("tp_size", 1)))
    for rank, answer in answers()[case.name].items():
        stage = estimated.stages[rank // tp]
        assert stage.total == pytest.approx(answer["weights"], rel=WEIGHTS_BAND)
        assert stage.parts.get("draft", 0) == pytest.approx(answer["draft"], rel=WEIGHTS_BAND)
        for part, held in answer["parts"].items():
            assert stage.parts.get(part, 0) == pytest.approx(held, rel=PARTS_BAND, abs=SCALARS), part
        assert estimated.kv_bytes_per_stage[rank // tp] == answer["kv_bytes_per_token"]
