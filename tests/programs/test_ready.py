"""The unit's ExecStartPost, against processes on the loopback that behave like a server in one respect each."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from roles.serve import ready

# Prints its port once it listens, then gives (and prints) the answers of its arguments in turn, the last for ever;
# "silence" keeps the connection open and says nothing.
SERVER = """\
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
answers, kept = sys.argv[1:], []
while True:
    connection, _ = listener.accept()
    connection.recv(4096)
    answer = answers.pop(0) if len(answers) > 1 else answers[0]
    print(answer, flush=True)
    if answer == "silence":
        kept.append(connection)
        continue
    connection.sendall(f"HTTP/1.1 {answer} Whatever\\r\\nContent-Length: 0\\r\\n\\r\\n".encode())
    connection.close()
"""
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-IS', '-c', {SERVER!r}, *sys.argv[1:]])"
IDLE = "import sys; print(0, flush=True); sys.stdin.read()"


@pytest.fixture(autouse=True)
def _short_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready, "INTERVAL", 0.01)


@contextmanager
def process(program: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A running program and the port that it prints first."""
    command = [sys.executable, "-IS", "-c", program, *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
    ) as running:
        assert running.stdout is not None
        try:
            yield running, int(running.stdout.readline())
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, 9)


@pytest.fixture
def occupied() -> Iterator[int]:
    """A port that this process holds, as a stranger would, answering like a server that is ready."""
    with process(SERVER, "200") as (_, port):
        yield port


def test_it_waits_until_the_server_says_200() -> None:
    with process(SERVER, "503", "503", "200") as (server, port):
        assert ready.wait(server.pid, "127.0.0.1", port) == ""
        server.kill()

        assert server.communicate()[0].split() == ["503", "503", "200"]


def test_a_worker_of_the_server_may_hold_the_port() -> None:
    with process(PARENT, "200") as (server, port):
        assert ready.wait(server.pid, "127.0.0.1", port) == ""


def test_a_busy_server_is_not_a_dead_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready, "PATIENCE", 0.02)
    with process(SERVER, "silence", "silence", "200") as (server, port):
        assert ready.wait(server.pid, "127.0.0.1", port) == ""


def test_a_server_that_ends_while_loading_ends_the_wait() -> None:
    with process(IDLE) as (server, _):
        server.kill()

        assert ready.wait(server.pid, "127.0.0.1", 1) == f"the main process {server.pid} has ended"


def test_a_port_that_another_process_holds_ends_the_wait_though_it_answers(
    occupied: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with process(IDLE) as (server, _):
        assert ready.main([str(server.pid), "127.0.0.1", str(occupied)]) == 1

    assert capsys.readouterr().err == (
        f"ready: port {occupied} is held by a process of user id {os.getuid()} that is not of this service\n"
    )


def test_a_server_that_listens_everywhere_is_hindered_by_any_listener(occupied: int) -> None:
    assert len(ready.listeners("0.0.0.0", occupied)) == 1


def test_a_listener_on_another_address_is_no_hindrance(occupied: int) -> None:
    assert ready.listeners("127.0.0.2", occupied) == []


def test_a_listener_on_all_addresses_is_a_hindrance() -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener:
        assert len(ready.listeners("127.0.0.1", listener.getsockname()[1])) == 1


def test_a_connection_is_not_a_listener(occupied: int) -> None:
    with socket.create_connection(("127.0.0.1", occupied)) as connection:
        own_end = connection.getsockname()[1]

        assert ready.listeners("127.0.0.1", own_end) == []


def test_a_descriptor_that_is_closed_meanwhile_does_not_hide_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    other, listener = socket.socket(), socket.create_server(("127.0.0.1", 0))
    list_folder = Path.iterdir

    def close_one(folder: Path) -> Iterator[Path]:
        found = list(list_folder(folder))
        other.close()
        return iter(found)

    with listener:
        held = str(Path(f"/proc/self/fd/{listener.fileno()}").readlink())
        monkeypatch.setattr(Path, "iterdir", close_one)
        assert ready.held_by(os.getpid(), {held})
