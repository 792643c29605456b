"""benchmarks: what is made of the times that were measured."""

import pytest

from benchmarks.relay import Direction
from benchmarks.report import report
from benchmarks.samples import Comparison, Goal

MEASURED = {"Slipway": [1.0, 9.0, 2.0], "Ansible": [8.0, 7.0, 30.0]}


@pytest.mark.parametrize(
    ("goal", "met"),
    [(Goal("Ansible", 0.25), True), (Goal("Ansible", 0.2), False), (Goal("Ansible", 0.1, more=1.2), True)],
)
def test_medians_are_compared_with_a_goal(goal: Goal, met: bool) -> None:
    assert Comparison("1 host", MEASURED).meets(goal) is met


def test_the_report_says_how_far_the_runs_were_apart_and_which_goals_were_missed() -> None:
    goals = [Goal("Ansible", 0.25), Goal("Ansible", 0.2)]
    text = report([("Nothing to do", "A run.", [Comparison("1 host", MEASURED, goals)])])
    assert "medians of 3 runs" in text
    row = "| 1 host | 2.00 (1.00 to 9.00) | 8.00 (7.00 to 30.00) | 0.25x | 0.25x Ansible: met, 0.2x Ansible: missed |"
    assert row in text


def test_a_link_delays_and_shares_its_rate() -> None:
    link = Direction(delay=0.5, rate=100)
    assert link.arrival(now=10, count=100) == 11.5
    assert link.arrival(now=10, count=50) == 12.0
    assert link.arrival(now=20, count=0) == 20.5
