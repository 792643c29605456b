"""Start a unit, or join its start under way, and say how far it is. Runs on the host, as root: stdlib only.

    python -m roles.serve.start UNIT LIMIT

Prints a line whenever the start gets further, with the seconds passed and the LIMIT, until systemd calls the
unit active (exit status 0) or failed (1). A server that has loaded and does not bind its port counts as failed
too. If this program is cut off, the start goes on; run it again to follow it.
"""

import os
import selectors
import subprocess
import sys
import time
from typing import IO

from roles.serve.progress import Phase, Progress

HEARTBEAT = 10.0
"""Seconds after which a line is printed although nothing changed, so that silence means a lost connection."""

BIND_LIMIT = 60.0
"""Seconds within which a loaded server binds its port; it takes less than one."""


class Follower:
    """What is known of a start, and when it was last told."""

    def __init__(self, began: float, limit: int) -> None:
        self._began = began
        self._limit = limit
        self._progress = Progress()
        self._since = began
        self._told = 0.0
        self._rest = b""

    def hear(self, output: bytes) -> None:
        """Take what the journal printed. A phase is told at once, a count within it at each heartbeat."""
        *lines, self._rest = (self._rest + output).split(b"\n")
        before = self._progress.phase
        for line in lines:
            self._progress = self._progress.after(line.decode(errors="replace"))
        if self._progress.phase != before:
            self._since = time.monotonic()
            self.tell(str(self._progress))

    def silence(self) -> float:
        """Seconds until the next heartbeat is due."""
        return max(self._told + HEARTBEAT - time.monotonic(), 0)

    def beat(self) -> None:
        if not self.silence():
            self.tell(str(self._progress))

    def never_binds(self) -> bool:
        return self._progress.phase is Phase.BINDING and time.monotonic() - self._since > BIND_LIMIT

    def tell(self, what: str) -> None:
        self._told = time.monotonic()
        print(f"{self._told - self._began:5.0f} s of at most {self._limit} s: {what}", flush=True)


def follow(start: "subprocess.Popen[bytes]", journal: IO[bytes], follower: Follower) -> int:
    """Tell what the journal says until `start` ends; its exit status, or 1 if waiting has become senseless."""
    with selectors.DefaultSelector() as selector:
        selector.register(journal, selectors.EVENT_READ)
        selector.register(os.pidfd_open(start.pid), selectors.EVENT_READ)
        while start.poll() is None:
            for key, _ in selector.select(follower.silence()):
                if key.fileobj is journal and not hear(journal, follower):
                    selector.unregister(journal)
            follower.beat()
            if follower.never_binds():
                follower.tell(f"loaded, but did not bind its port in {BIND_LIMIT:.0f} s")
                start.terminate()
                start.wait()
                return 1
    return 1 if start.returncode else 0


def hear(journal: IO[bytes], follower: Follower) -> bool:
    """Pass on what the journal has to say; False once it ended."""
    output = os.read(journal.fileno(), 65536)
    follower.hear(output)
    return bool(output)


def started(unit: str) -> float:
    """When the start under way began, or now, in seconds of the monotonic clock."""
    asked = ["systemctl", "show", "--property=ActiveState,InactiveExitTimestampMonotonic", unit]
    answer = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    shown = dict(line.split("=", 1) for line in answer.splitlines())
    if shown["ActiveState"] == "activating":
        return int(shown["InactiveExitTimestampMonotonic"]) / 1e6
    return time.monotonic()


def main(arguments: list[str]) -> int:
    unit, limit = arguments
    began = started(unit)
    since = time.time() - (time.monotonic() - began)
    watch = ["journalctl", "--follow", "--no-tail", "--output=cat", f"--unit={unit}", f"--since=@{since:.6f}"]
    with subprocess.Popen(watch, stdout=subprocess.PIPE) as journal:
        assert journal.stdout is not None
        follower = Follower(began, int(limit))
        try:
            with subprocess.Popen(["systemctl", "start", unit]) as start:
                status = follow(start, journal.stdout, follower)
        finally:
            journal.terminate()
    follower.tell("failed" if status else "ready")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
