"""Real ranks exchange real values over gloo, through the torch of a release."""

import json
from typing import Any

import pytest

from roles.preflight.exchange import SOURCE
from tests.lab import hosts
from tests.lab.recorded.conftest import HOST, RELEASE

FAULTS = {
    "wrong": "real(tensor); tensor[17] += 1",
    "hanging": "import signal; signal.pause()",
    "failing": "raise RuntimeError('link is down')",
}

# Rank 1 is a program that breaks torch's all_reduce and then does what every rank does.
FAULTY = """
import sys
import torch.distributed as dist
sys.path.insert(0, "/tmp")
import collective
real = dist.all_reduce
def broken(tensor):
    {fault}
mode, rendezvous, seconds, rank = sys.argv[1:]
if mode == "faulty":
    dist.all_reduce = broken
collective.rank_main("gloo", 2, float(seconds), rendezvous, int(rank))
"""

SUPERVISE = """
import json, sys, tempfile
sys.path.insert(0, "/tmp")
import collective
with tempfile.TemporaryDirectory() as folder:
    start = [sys.executable, "/tmp/faulty.py"]
    rest = ["file://" + folder + "/rendezvous", sys.argv[1]]
    ranks = [[*start, "right", *rest, "0"], [*start, "faulty", *rest, "1"]]
    print(json.dumps(collective.supervise(ranks, float(sys.argv[1]))))
"""


def send(name: str, text: str) -> None:
    hosts.run(HOST, f"cat >/tmp/{name} <<'END'\n{text}\nEND")


@pytest.fixture(scope="module", autouse=True)
def program(host_with_release: str) -> None:
    send("collective.py", SOURCE.read_text())


def run(command: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(
        hosts.run(HOST, f"cd /tmp && {RELEASE.python} {command}").strip().splitlines()[-1]
    )
    return report


def with_fault(fault: str, seconds: int) -> str:
    send("faulty.py", FAULTY.format(fault=FAULTS[fault]))
    send("supervise.py", SUPERVISE)
    problem: str = run(f"supervise.py {seconds}")["problem"]
    return problem


def test_two_ranks_exchange_right_values_and_measure_their_bandwidth() -> None:
    report = run("collective.py gloo 2 180")
    assert report["problem"] == ""
    assert [(one["collective"], one["bytes"] > 0, one["bus_gb_s"] > 0) for one in report["measured"]] == [
        ("all-reduce", True, True),
        ("all-reduce", True, True),
        ("all-to-all", True, True),
        ("all-to-all", True, True),
    ]


def test_a_rank_with_wrong_values_is_found() -> None:
    problem = with_fault("wrong", seconds=180)
    assert problem.startswith("rank 1 got wrong values in all-reduce of 64 KiB: element 17 of 16384 is ")


def test_a_rank_that_fails_is_named() -> None:
    assert "link is down" in with_fault("failing", seconds=180)


@pytest.mark.long  # the others are given a minute to import torch, which the exchange then takes to its end
def test_a_rank_that_hangs_ends_the_exchange_in_time() -> None:
    problem = with_fault("hanging", seconds=60)
    assert problem == "not finished after 60 s: ranks 0, 1 in all-reduce of 64 KiB"
    assert hosts.run(HOST, "pgrep -f '[f]aulty.py'; true").strip() == ""
