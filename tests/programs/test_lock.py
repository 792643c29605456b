"""roles.lock: the program, in real shells."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from roles.lock import check_lock, lock_program
from roles.paths import RUNTIME
from roles.refusal import Refusal

Program = Callable[..., str]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """The program of a run, with its files in a folder of this test."""
    return lambda run: lock_program(run).replace(RUNTIME, str(tmp_path))


def carried(program: str) -> subprocess.Popen[str]:
    """A process that is no shell, as sshd is none, runs the program in a shell below it, and stays."""
    carrier = "import os, subprocess, sys; subprocess.run(['sh', '-c', sys.argv[1]]); os.close(1); sys.stdin.read()"
    return subprocess.Popen(
        ["python3", "-c", carrier, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def answer(program: str) -> tuple[subprocess.Popen[str], list[str]]:
    run = carried(program)
    assert run.stdout is not None
    return run, run.stdout.read().splitlines()


def end(run: subprocess.Popen[str]) -> None:
    run.kill()
    run.communicate()


def test_one_run_at_a_time_and_a_dead_one_holds_nothing(program: Program) -> None:
    first, said = answer(program("first"))
    assert said == ["taken"]
    second, said = answer(program("second"))
    assert re.fullmatch(r"held \S+@\S+ since \d\d:\d\d:\d\d UTC", said[0])
    with pytest.raises(Refusal, match=r"host gpu-1: another run is at work, of \S+@\S+ since"):
        check_lock(said, "gpu-1")
    end(first)
    third, said = answer(program("third"))
    assert said == ["taken"]
    check_lock(said, "gpu-1")
    end(second)
    end(third)


def test_the_same_run_may_take_it_again(program: Program) -> None:
    twice, said = answer(f"({program('one')})\n({program('one')})")
    assert said == ["taken", "taken"]
    end(twice)


def test_a_run_that_lost_its_connection_may_take_it_again_before_the_host_knows(program: Program) -> None:
    lost, _ = answer(program("one"))
    again, said = answer(program("one"))
    assert said == ["taken"]
    other, said = answer(program("other"))
    assert said[0].startswith("held ")
    for run in (lost, again, other):
        end(run)
