"""What pyinfra lacks, and Slipway makes up for. When one of these tests fails, what its docstring names can go."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from paramiko import PKey, SSHException
from pyinfra.api.command import StringCommand
from pyinfra.api.config import Config
from pyinfra.api.connect import connect_all
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State
from pyinfra.connectors.fake import FakeConnector
from pyinfra.connectors.sshuserclient.client import SSHClient, StrictPolicy

PYINFRA = str(Path(sys.executable).with_name("pyinfra"))


def stock(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """pyinfra where there is no config.py of Slipway's."""
    return subprocess.run([PYINFRA, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_an_inventory_in_ansibles_form_is_not_read(tmp_path: Path) -> None:
    """`make_inventory` in config.py, https://github.com/pyinfra-dev/pyinfra/issues/301."""
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory/hosts.yml").write_text("all: {hosts: {'@local': }}")
    for source in ("inventory", "inventory/hosts.yml"):
        run = stock(tmp_path, source, "debug-inventory")
        assert run.returncode == 1 or "@local" not in run.stdout + run.stderr


def test_a_limit_that_means_nobody_is_no_error(tmp_path: Path) -> None:
    """`SiteInventory.require`, https://github.com/pyinfra-dev/pyinfra/issues/685."""
    assert stock(tmp_path, "@local", "--limit", "nobody", "-y", "server.shell", "uptime").returncode == 0


def test_an_interrupted_run_ends_with_exit_code_0(tmp_path: Path) -> None:
    """`guarded` in roles/serve/interruption.py keeps a switch from being cut off so; no issue is known."""
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    command = [PYINFRA, "@local", "-y", "server.shell", f"echo > {ready}; exec sleep 60"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True) as run:
        ready.read_text()
        os.killpg(run.pid, signal.SIGINT)  # as a terminal does
        assert run.wait(30) == 0


@pytest.fixture
def state() -> Callable[..., State]:
    def make(name: str = "@fake/one", **data: object) -> State:
        data = {"fake_delay": 0, "fake_delay_jitter": 0, **data}
        return State(Inventory(([(name, data)], {})), Config())

    return make


def test_a_command_takes_no_privileges_from_the_hosts_variables(state: Callable[..., State]) -> None:
    """`roles.remote.attempt`, https://github.com/pyinfra-dev/pyinfra/issues/1135."""
    made = state(_sudo=True)
    connect_all(made)
    (one,) = made.inventory
    one.run_shell_command(StringCommand("id"))
    assert isinstance(one.connector, FakeConnector)
    assert "sudo" not in str(one.connector.executed_commands[-1])


def test_a_host_that_does_not_answer_ends_the_run(state: Callable[..., State]) -> None:
    """`connect_where_possible` in inventory/reaching.py; no issue is known."""
    with pytest.raises(PyinfraError, match="No hosts remaining"):
        connect_all(state("127.0.0.1", ssh_port=1))


def test_an_unknown_key_is_refused_without_a_word_on_what_to_do() -> None:
    """inventory/known_hosts.py, https://github.com/pyinfra-dev/pyinfra/pull/742."""
    with pytest.raises(SSHException) as refused:
        StrictPolicy().missing_host_key(SSHClient(), "one", PKey())
    assert "ssh-keyscan" not in str(refused.value)
