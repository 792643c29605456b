"""Asks an installed release for the truth: `python -m tests.oracle PYTHON [NAME…]`, PYTHON being the release's."""

import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from roles.serve.exact import Answer, Question, answers, program
from roles.serve.exact_question import question
from roles.sglang.catalogue import Catalogue
from tests.oracle.cases import HOST, cases

VERSION: Final = "0.5.23"
TABLE: Final = Path(__file__).parents[1] / "unit" / "data" / f"oracle-{VERSION}.json"


def ask(python: str, questions: list[Question]) -> list[Answer]:
    """Answers from the release that `python` belongs to, as they come."""
    with tempfile.NamedTemporaryFile(suffix=".pyz") as packed:
        packed.write(program())
        packed.flush()
        lines = "".join(one.line() + "\n" for one in questions)
        run = subprocess.run([python, packed.name], input=lines, stdout=subprocess.PIPE, text=True, check=True)
    return answers(run.stdout.splitlines())


def _ends(one: Question) -> Question:
    """Only the first two pipeline stages and the last: those between are like the second."""
    return replace(one, ranks=tuple(dict.fromkeys((*one.ranks[:2], one.ranks[-1]))))


def main(python: str, names: list[str]) -> None:
    """Writes the table, or only shows the cases in `names`."""
    catalogue = Catalogue.load(VERSION)
    asked = [
        _ends(question(case.model, case.profile, HOST, catalogue, case.draft))
        for case in cases()
        if case.name in (names or [case.name])
    ]
    found = ask(python, asked)
    for answer in found:
        print(answer.name, answer.rank, answer.refusal or answer.weights, file=sys.stderr)
    if names:
        print(json.dumps([json.loads(answer.line()) for answer in found], indent=1))
        return
    table = {
        "sglang": VERSION,
        "answers": [
            {key: value for key, value in json.loads(answer.line()).items() if key not in ("version", "settings")}
            for answer in found
        ],
    }
    TABLE.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
