"""Reads questions, writes answers: imports SGLang once and builds each server in a fork of its own."""

import os
import sys
import traceback

from roles.serve.exact import Answer, Question
from roles.serve.exact.gpus import pretend


def main() -> None:
    """One question a line on standard input, one answer a line and rank on standard output."""
    questions = [Question.of_line(line) for line in sys.stdin if line.strip()]
    if not questions:
        return
    output = os.dup(1)
    os.dup2(2, 1)  # libraries print banners
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("SGLANG_NCCL_SO_PATH", "/nonexistent")
    pretend(questions[0])

    from roles.serve.exact.build import load_sglang

    load_sglang()
    for question in questions:
        for rank in question.ranks:
            child = os.fork()
            if child == 0:
                _answer(question, rank, output)
            os.waitpid(child, 0)


def _answer(question: Question, rank: int, output: int) -> None:
    """Writes the answer and ends the process: what SGLang keeps in globals never meets the next question."""
    from roles.serve.exact.build import build, version

    try:
        os.environ.update(question.environment)
        pretend(question)
        answer = build(question, rank)
    except BaseException as error:
        traceback.print_exc()
        answer = Answer(question.name, rank, version(), refusal=f"{type(error).__name__}: {error}"[:600])
    os.write(output, (answer.line() + "\n").encode())
    os._exit(0)
