"""The main job from end to end, in the order in which a user meets it. Each test goes on where the last one ended."""

import re
from pathlib import Path

import pytest

from roles.benchmark.record import Record
from tests.lab import hosts
from tests.lab.conftest import ROOT, Run, ask_hosts, deploy, pyinfra, told

pytestmark = pytest.mark.usefixtures("lab")


def outcomes(run: Run) -> dict[str, str]:
    """What pyinfra says of each operation: Success, No changes, or Error."""
    text = run.stdout + run.stderr
    return dict(re.findall(r"Starting operation: (.*?) *\n(?:.*\n)*?.*\[\S+\] (Success|No changes|Error)", text))


def serving(host: str = "lab") -> list[str]:
    lines = hosts.run(host, "systemctl list-units --plain --no-legend --state=active 'sglang-*'").splitlines()
    return [line.split()[0] for line in lines]


def test_a_bare_host_becomes_a_server_that_has_proven_itself() -> None:
    run = deploy()
    assert run.returncode == 0, told(run)
    assert serving() == ["sglang-tiny-tp1.service"]


def test_a_second_run_changes_nothing() -> None:
    run = deploy()
    assert run.returncode == 0, told(run)
    found = outcomes(run)
    assert len(found) > 8
    assert set(found.values()) == {"No changes"}, found


def test_the_host_itself_says_that_all_of_it_is_true() -> None:
    run = ask_hosts()
    assert run.returncode == 0, told(run)


def test_a_record_was_brought_back() -> None:
    records = sorted((ROOT / "results/lab").glob("*.json"))
    assert records
    record = Record.read_json(records[-1].read_text(), records[-1].name)
    assert record.accepted
    assert {point.concurrency for point in record.points()} == {1, 8}


def test_switching_the_profile_and_going_back() -> None:
    run = deploy("--data", "profile=tiny-tp2")
    assert run.returncode == 0, told(run)
    assert serving() == ["sglang-tiny-tp2.service"]
    asked = ask_hosts("--data", "profile=tiny-tp2")
    assert asked.returncode == 0, told(asked)
    run = deploy("--data", "profile=previous")
    assert run.returncode == 0, told(run)
    assert serving() == ["sglang-tiny-tp1.service"]


def test_a_missed_floor_ends_with_exit_code_1_and_the_old_profile(tmp_path: Path) -> None:
    site = tmp_path / "site"
    profiles = site / "group_vars/profiles"
    profiles.mkdir(parents=True)
    (site / "inventory").mkdir()
    (site / "inventory/hosts.yml").write_text((ROOT / "inventory/lab.yml").read_text())
    (profiles / "too-fast.yml").write_text(
        "description: Asks for more than any CPU gives.\n"
        "extends: tiny-tp1\n"
        "benchmark:\n"
        "  floors: [{traffic: chat, concurrency: 8, tokens_per_second: 1000000}]\n"
    )
    run = deploy("--data", "profile=too-fast", inventory=str(site / "inventory"))
    assert run.returncode == 1, told(run)
    assert "1000000" in run.stderr.replace(",", "").replace(" ", "")
    assert serving() == ["sglang-tiny-tp1.service"]


@pytest.mark.parametrize(
    ("breaks", "mends"),
    [
        ("systemctl disable sglang-tiny-tp1", "systemctl enable sglang-tiny-tp1"),
        ("systemctl enable sglang-tiny-tp2", "systemctl disable sglang-tiny-tp2"),
        ("chmod 777 /var/lib/slipway", "chmod 755 /var/lib/slipway"),
        ("usermod -s /bin/sh sglang", "usermod -s /usr/sbin/nologin sglang"),
        (
            "sed -i.bak s/tp-size/pp-size/ /etc/systemd/system/sglang-tiny-tp1.service",
            "cd /etc/systemd/system && mv sglang-tiny-tp1.service.bak sglang-tiny-tp1.service",
        ),
        ("mv /var/lib/slipway/records /var/lib/slipway/r", "mv /var/lib/slipway/r /var/lib/slipway/records"),
    ],
)
def test_the_host_says_so_when_something_is_broken_by_hand(breaks: str, mends: str) -> None:
    hosts.run("lab", breaks)
    try:
        assert ask_hosts().returncode == 1
    finally:
        hosts.run("lab", mends)


def test_a_host_that_cannot_be_reached_is_one_sentence_and_exit_code_1() -> None:
    run = pyinfra("-y", "inventory", "deploy.py", "--data", "ssh_port=1")
    assert run.returncode == 1
    assert "Traceback" not in run.stdout + run.stderr
