"""The rules for parallel sizes refuse what SGLang refuses, and use as many GPUs as it would start ranks.

The table is made by `make oracle` from an installed release; see tests/oracle.
"""

import json

import pytest

from roles.serve.parallelism import Parallelism, check
from roles.serve.profile import Profile
from tests.oracle.cases import HOST, documents
from tests.oracle.refusals import ASKED, TABLE, profile

FOUND = json.loads(TABLE.read_text(encoding="utf-8"))
SAYS: dict[str, str] = FOUND["says"]

PROFILES = [profile(*one) for one in ASKED]


def test_every_question_was_asked() -> None:
    assert set(SAYS) == {one.name for one in PROFILES}


@pytest.mark.parametrize("one", PROFILES, ids=lambda one: one.name)
def test_rules_refuse_what_sglang_refuses_and_nothing_else(one: Profile) -> None:
    gpus = Parallelism.of(one.server).gpus
    problems = check(one, documents()[0][one.model], HOST.model_copy(update={"gpus": gpus}))

    assert bool(problems) == bool(SAYS[one.name]), (problems, SAYS[one.name])


@pytest.mark.parametrize(("name", "ranks"), FOUND["ranks"].items())
def test_as_many_gpus_are_counted_as_ranks_are_started(name: str, ranks: int) -> None:
    asked = next(one for one in PROFILES if one.name == name)
    assert Parallelism.of(asked.server).gpus == ranks
