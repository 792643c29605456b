"""The exact answer's question and its program; the program itself is run by `make oracle`."""

import ast
import zipfile
from io import BytesIO
from itertools import pairwise

from roles.serve.exact import Answer, Question, answers, program
from roles.serve.exact_question import question
from roles.sglang.catalogue import Catalogue
from tests.oracle.cases import HOST, Case, cases

CATALOGUE = Catalogue.load("0.5.23")
CASES = {case.name: case for case in cases()}


def asked(case: Case) -> Question:
    return question(case.model, case.profile, HOST, CATALOGUE, case.draft)


def test_a_question_survives_the_way_to_the_host() -> None:
    for case in CASES.values():
        one = asked(case)
        assert Question.of_line(one.line()) == one


def test_each_stage_of_a_pipeline_is_asked_for() -> None:
    assert asked(CASES["k26-tp2-pp4"]).ranks == (0, 2, 4, 6)
    assert asked(CASES["k26-tp8"]).ranks == (0,)


def test_flags_are_those_of_the_profile_but_for_files_that_may_not_exist() -> None:
    flags = asked(CASES["k26-ep8-placement"]).flags
    assert ("--ep-size", "8") in pairwise(flags)
    assert "--init-expert-location" not in flags
    assert not any(word.startswith(("--model-path", "--host", "--port")) for word in flags)


def test_a_draft_is_asked_for_with_its_target() -> None:
    assert "config.json" in asked(CASES["k26-ep8-eagle3"]).draft_files
    assert asked(CASES["k26-ep8"]).draft_files == {}


def test_answers_are_found_among_other_output() -> None:
    answer = Answer(name="a", rank=0, version="0.5.23", weights=1, parts={"experts": 1})
    assert answers(["warning: …", answer.line(), ""]) == [answer]


def test_the_program_is_complete_and_needs_nothing_of_ours_beside_it() -> None:
    with zipfile.ZipFile(BytesIO(program())) as packed:
        files = {name: packed.read(name).decode() for name in packed.namelist()}
    modules = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in files}
    for source in files.values():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("roles"):
                assert node.module in modules
