"""What a run with nothing to do costs a user behind a slow link, counted by the host's own sshd."""

import time
from collections.abc import Iterator

import pytest

from tests.lab import hosts
from tests.lab.conftest import deploy, told

LIMIT = 12
"""Commands of a run."""
CONFIG = "/etc/ssh/sshd_config.d/00-verbose.conf"


@pytest.fixture
def talkative(lab: str) -> Iterator[str]:
    """A host that serves, and whose sshd logs each command."""
    assert deploy().returncode == 0
    hosts.run(lab, f"echo 'LogLevel VERBOSE' > {CONFIG} && systemctl reload ssh")
    yield lab
    hosts.run(lab, f"rm {CONFIG} && systemctl reload ssh")


def connections(log: str) -> int:
    """How often somebody has logged in, by sshd's log."""
    return sum(line.startswith("Accepted publickey") for line in log.splitlines())


def commands(log: str) -> int:
    """How often anything was asked for: a command, a shell, or the transfer of files."""
    return sum(line.startswith("Starting session:") for line in log.splitlines())


def test_a_run_with_nothing_to_do_asks_few_times_over_one_connection(talkative: str) -> None:
    began = time.time()
    run = deploy()
    ended = time.time()
    assert run.returncode == 0, told(run)
    logged = hosts.run(talkative, f"journalctl -t sshd --output=cat --since=@{began:.6f} --until=@{ended:.6f}")
    assert connections(logged) == 1, logged
    assert 1 <= commands(logged) <= LIMIT, logged


LOGIN = "Accepted publickey for root from 10.0.0.1 port 50000 ssh2: ED25519 SHA256:x\n"
COMMAND = "Starting session: command for root from 10.0.0.1 port 50000 id 0\n"
TRANSFER = "Starting session: subsystem 'sftp' for root from 10.0.0.1 port 50000 id 1\n"
END = "Close session: user root from 10.0.0.1 port 50000 id 0\n"


def test_one_login_or_request_more_is_one_too_many() -> None:
    allowed = LOGIN + (COMMAND + END) * LIMIT
    assert (connections(allowed), commands(allowed)) == (1, LIMIT)
    assert connections(allowed + LOGIN) > 1
    assert commands(allowed + COMMAND) > LIMIT
    assert commands(allowed + TRANSFER) > LIMIT
