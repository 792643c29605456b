"""The exchange between GPUs is watched: wrong values, errors and hangs each end it with who and where.

The ranks here are stand-ins that say what real ones say; tests/lab lets real ones exchange values over gloo.
"""

import json
import os
import sys
from pathlib import Path

import pytest

from roles.preflight import collective
from roles.preflight.exchange import Exchange, report

READY: list[dict[str, object]] = [{"doing": "joining the others"}, {"doing": "all-reduce of 64 KiB"}]
RESULT: dict[str, object] = {"collective": "all-reduce", "bytes": 65536, "microseconds": 12.5, "bus_gb_s": 9.1}


def rank(*words: dict[str, object], then: str = "") -> list[str]:
    """A process that says `words` and then runs Python code."""
    lines = "".join(f"print({json.dumps(json.dumps(word))}, flush=True); " for word in words)
    return [sys.executable, "-S", "-c", lines + then]


HANG = "import signal; signal.pause()"


def test_ranks_that_all_succeed_give_what_the_first_measured() -> None:
    outcome = collective.supervise([rank(*READY, RESULT), rank(*READY, RESULT)], seconds=60)
    assert outcome == {"problem": "", "measured": [RESULT]}


def test_wrong_values_name_the_rank_and_the_step() -> None:
    wrong = rank(*READY, {"wrong": "element 17 of 16384 is 0.0, not 51.0, and 3 more differ"}, then=HANG)
    problem = collective.supervise([rank(*READY, then=HANG), wrong], seconds=60)["problem"]
    assert problem == (
        "rank 1 got wrong values in all-reduce of 64 KiB: element 17 of 16384 is 0.0, not 51.0, and 3 more differ"
    )


def test_an_error_is_told_in_its_last_words() -> None:
    failing = rank(*READY, then="raise RuntimeError('NCCL error: unhandled system error')")
    problem = collective.supervise([rank(*READY, then=HANG), failing], seconds=60)["problem"]
    assert problem == ("rank 1 failed in all-reduce of 64 KiB: RuntimeError: NCCL error: unhandled system error")


def test_a_rank_that_dies_in_silence_is_an_error() -> None:
    killed = rank(then="import os; os.kill(os.getpid(), 9)")
    assert collective.supervise([killed], seconds=60)["problem"] == "rank 0 failed in starting: exit status -9"


def test_a_hang_ends_in_time_says_where_the_ranks_wait_and_leaves_nothing(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    note = f"import os; open({str(pid)!r}, 'w').write(str(os.getpid())); "
    outcome = collective.supervise([rank(then=note + HANG), rank(then=HANG)], seconds=1)
    assert outcome["problem"] == "not finished after 1 s: ranks 0, 1 in starting"
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def exchange(**changes: object) -> Exchange:
    values: dict[str, object] = {"release": "/opt/r", "ranks": 8, "environment": {"NCCL_P2P_LEVEL": "SYS"}}
    return Exchange(**{**values, **changes})  # type: ignore[arg-type]


def test_the_environment_of_the_server_is_the_one_that_is_tried() -> None:
    command = exchange().command
    assert "runuser -u sglang -- env NCCL_P2P_LEVEL=SYS /opt/r/bin/python" in command
    assert command.endswith("nccl 8 180")


@pytest.mark.parametrize("changed", [{"release": "/opt/s"}, {"ranks": 4}, {"environment": {"NCCL_P2P_DISABLE": "1"}}])
def test_other_conditions_are_tried_anew(changed: dict[str, object]) -> None:
    assert exchange().identity("580.82.07") == exchange().identity("580.82.07")
    assert exchange(**changed).identity("580.82.07") != exchange().identity("580.82.07")
    assert exchange().identity("590.48.01") != exchange().identity("580.82.07")


def test_a_report_is_lines_for_a_person() -> None:
    problem, measured = report("noise\n" + json.dumps({"problem": "", "measured": [RESULT]}))
    assert problem == ""
    assert measured == ["all-reduce of 64 KiB: 12 us, 9.1 GB/s on the bus"]


def test_a_program_that_cannot_even_report_is_a_problem() -> None:
    assert report("")[0] == "it said nothing"
    assert report("runuser: user sglang does not exist")[0] == "runuser: user sglang does not exist"
