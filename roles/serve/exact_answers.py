"""Ask a release on a host for the exact answers."""

import base64
import gzip
from collections.abc import Iterable

from pyinfra.api.host import Host

from roles.observation import observe
from roles.serve.exact import Answer, Question, answers, program


def exact_answers(host: Host, python: str, questions: Iterable[Question]) -> list[Answer]:
    """What SGLang's own code says, `python` being the release's; empty if it says nothing.

    It takes half a minute, and some seconds for each rank of each question. Nothing is left on the host, and a
    server that runs there keeps its GPUs and its share of the CPUs.
    """
    return answers(observe(host, {"exact": command(python, questions)})["exact"])


def command(python: str, questions: Iterable[Question]) -> str:
    """The shell program: everything that it needs is in it."""
    lines = "".join(question.line() + "\n" for question in questions)
    return f"""
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT
echo {_encoded(program())} | base64 -d > "$folder/exact.pyz"
export HOME="$folder" PYTHONDONTWRITEBYTECODE=1 CUDA_VISIBLE_DEVICES=
echo {_encoded(gzip.compress(lines.encode()))} | base64 -d | gunzip | nice {python} "$folder/exact.pyz"
"""


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
