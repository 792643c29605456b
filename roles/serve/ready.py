"""Wait until the server of this unit is ready: the unit's ExecStartPost. Runs on the host: stdlib only.

    ready.py PID HOST PORT

PID is systemd's $MAINPID. Exit status 0: /ready answered 200 on a port that PID, or a process that it started,
holds. 1: PID ended, or another process holds the port, in which case SGLang loads everything, logs [Errno 98]
and hangs with the GPU memory held. How long to wait is the unit's TimeoutStartSec: a server that is still
loading, or too busy to answer, is not a dead one. Needs no privilege but to be the service's user.
"""

import os
import select
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

INTERVAL = 0.2
PATIENCE = 10.0
"""Seconds for one answer."""

_LISTEN = "0A"
"""TCP_LISTEN in /proc/net/tcp, include/net/tcp_states.h."""
_WILDCARDS = ("0" * 8, "0" * 32)


class Listener:
    """A listening socket, as a line of /proc/net/tcp shows it."""

    def __init__(self, line: str) -> None:
        fields = line.split()
        self.address, port = fields[1].split(":")
        self.port = int(port, 16)
        self.listens = fields[3] == _LISTEN
        self.uid = int(fields[7])
        self.socket = f"socket:[{fields[9]}]"


def listeners(host: str, port: int) -> list[Listener]:
    """The listening sockets that leave no room for another one on `host` and `port`."""
    wanted = _kernel_form(host)
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in _lines(table)[1:]:
            listener = Listener(line)
            same = listener.address in (wanted, *_WILDCARDS) or wanted in _WILDCARDS
            if listener.listens and listener.port == port and same:
                found.append(listener)
    return found


def _kernel_form(host: str) -> str:
    """An address as /proc/net/tcp writes it: 32-bit words, each least significant byte first."""
    family, _, _, _, address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
    packed = socket.inet_pton(family, str(address[0]))
    return b"".join(packed[start : start + 4][::-1] for start in range(0, len(packed), 4)).hex().upper()


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:  # no IPv6
        return []


def held_by(pid: int, sockets: set[str]) -> bool:
    """Whether `pid` or a process that it started holds one of `sockets`."""
    return any(sockets & set(_descriptors(process)) for process in family(pid))


def _descriptors(pid: int) -> Iterator[str]:
    """What the descriptors of a process name; a server at work closes some meanwhile, or has ended."""
    with suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                yield str(link.readlink())


def family(pid: int) -> Iterator[int]:
    """`pid` and all processes that descend from it."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name, in parentheses, may hold anything; state and parent follow it.
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
        children.setdefault(parent, []).append(int(status.parent.name))
    waiting = [pid]
    while waiting:
        process = waiting.pop()
        yield process
        waiting += children.get(process, [])


def answers(host: str, port: int) -> bool:
    """Whether /ready says 200; while the server warms up it says 503."""
    try:
        with socket.create_connection((host, port), timeout=PATIENCE) as connection:
            connection.sendall(f"GET /ready HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            return connection.recv(64).split(b" ", 2)[1:2] == [b"200"]
    except OSError:
        return False


def wait(pid: int, host: str, port: int) -> str:
    """Wait; an empty text once the server is ready, else why it never will be."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return f"the main process {pid} has ended"
    ended = select.poll()
    ended.register(process, select.POLLIN)
    while not ended.poll(INTERVAL * 1000):
        holders = listeners(host, port)
        if not holders:
            continue
        if not held_by(pid, {holder.socket for holder in holders}):
            # The main process may have ended just now, and its port have gone to someone else.
            return f"port {port} is held by a process of user id {holders[0].uid} that is not of this service"
        if answers(_reachable(host), port):
            return ""
    return f"the main process {pid} has ended"


def _reachable(host: str) -> str:
    """An address to ask: a server that listens everywhere is asked on the loopback."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def main(arguments: list[str]) -> int:
    pid, host, port = arguments
    problem = wait(int(pid), host, int(port))
    if problem:
        print(f"ready: {problem}", file=sys.stderr)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
