"""What a run with nothing to do costs a user behind a slow link, counted by the host's own sshd."""

import time
from collections.abc import Iterator

import pytest

from tests.lab import hosts
from tests.lab.conftest import deploy, told

LIMIT = 12
CONFIG = "/etc/ssh/sshd_config.d/00-verbose.conf"


@pytest.fixture
def talkative(lab: str) -> Iterator[str]:
    """A host that serves, and whose sshd logs each command."""
    assert deploy().returncode == 0
    hosts.run(lab, f"echo 'LogLevel VERBOSE' > {CONFIG} && systemctl reload ssh")
    yield lab
    hosts.run(lab, f"rm {CONFIG} && systemctl reload ssh")


def test_a_run_with_nothing_to_do_asks_few_times_over_one_connection(talkative: str) -> None:
    began = time.time()
    run = deploy()
    ended = time.time()
    assert run.returncode == 0, told(run)
    logged = hosts.run(talkative, f"journalctl -t sshd --output=cat --since=@{began:.6f} --until=@{ended:.6f}")
    lines = logged.splitlines()
    assert len([line for line in lines if line.startswith("Accepted publickey")]) == 1, logged
    commands = [line for line in lines if line.startswith("Starting session:")]
    assert 1 <= len(commands) <= LIMIT, logged
