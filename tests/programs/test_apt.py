"""roles.apt: the program, in real shells, with real locks."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from roles import apt

AS_APT = "fcntl.lockf(file, fcntl.LOCK_EX)"
AS_A_RUN = "fcntl.flock(file, fcntl.LOCK_EX)"

Process = subprocess.Popen[str]


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The locks are files of this test, and a second goes by at once."""
    monkeypatch.setattr(apt, "_LOCKS", (f"{tmp_path}/lock-frontend", f"{tmp_path}/lists"))
    monkeypatch.setattr(apt, "_OWN", f"{tmp_path}/own")
    monkeypatch.setattr(apt, "LIMIT", 2)
    (tmp_path / "sleep").write_text("#!/bin/sh\n")
    (tmp_path / "sleep").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@pytest.fixture
def upgrade(tmp_path: Path) -> Iterator[Process]:
    yield from held(tmp_path / "lock-frontend", AS_APT)


@pytest.fixture
def other_run(tmp_path: Path) -> Iterator[Process]:
    yield from held(tmp_path / "own", AS_A_RUN)


def held(path: Path, take: str) -> Iterator[Process]:
    """A process that holds a lock until its input ends."""
    program = f"import fcntl, sys; file = open(sys.argv[1], 'a'); {take}; print('held', flush=True); sys.stdin.read()"
    command = ["python3", "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def run(commands: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", apt.alone(commands)], capture_output=True, text=True, check=False)


def test_a_host_that_is_free_is_not_kept_waiting() -> None:
    done = run("echo first || exit 1\necho second")
    assert (done.returncode, done.stdout, done.stderr) == (0, "first\nsecond\n", "")


def test_the_status_is_that_of_the_commands() -> None:
    assert run("false").returncode == 1
    assert run("exit 7").returncode == 7


def test_an_upgrade_is_waited_for(tmp_path: Path, upgrade: Process) -> None:
    (tmp_path / "sleep").write_text(f"#!/bin/sh\necho waited >>{tmp_path}/said\nkill {upgrade.pid}\n")
    assert run(f"echo ran >>{tmp_path}/said").returncode == 0
    assert (tmp_path / "said").read_text().split() == ["waited", "ran"]


def test_who_holds_apt_too_long_is_named(upgrade: Process) -> None:
    done = run("echo ran")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.match(rf"apt is still used by process {upgrade.pid} \(\S*python3 -c import fcntl", done.stderr)
    assert done.stderr.endswith("lock-frontend) after 2 s: let it end, or end it, and run again\n")


def test_what_an_earlier_run_left_at_work_is_waited_for(other_run: Process) -> None:
    done = run("echo ran")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "apt is still used by an earlier run after 2 s: let it end, or end it, and run again\n"


def test_what_the_commands_leave_behind_holds_nothing() -> None:
    left = run("tail -f /dev/null >/dev/null 2>&1 & echo $!").stdout
    try:
        assert run("echo ran").stdout == "ran\n"
    finally:
        os.kill(int(left), signal.SIGKILL)
