"""Start a unit, or join its start under way, and say how far it is. Runs on the host, as root: stdlib only.

    python -m roles.serve.start UNIT LIMIT

Prints a line whenever the start gets further, with the seconds passed and the LIMIT, until systemd calls the
unit active (exit status 0) or failed (1). A server that has loaded and does not bind its port counts as failed
too, and so does one that is not ready LIMIT seconds after its start began. If this program is cut off, the start
goes on; run it again to follow it.
"""

import os
import selectors
import subprocess
import sys
import time
from typing import IO, Final

from roles.serve.progress import Phase, Progress

HEARTBEAT = 10.0
"""Seconds after which a line is printed although nothing changed, so that silence means a lost connection."""

BIND_LIMIT = 60.0
"""Seconds within which a loaded server binds its port; it takes less than one."""


READY: Final = "ready"
LATE: Final = "not ready in time"
"""The last line printed, where that is why."""


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

    def patience(self) -> float:
        """Seconds until the next heartbeat, or the end of all waiting, is due."""
        return max(min(self._told + HEARTBEAT, self._began + self._limit) - time.monotonic(), 0)

    def beat(self) -> None:
        if time.monotonic() >= self._told + HEARTBEAT:
            self.tell(str(self._progress))

    def gives_up(self) -> str:
        """Why it would be senseless to wait any longer; empty as long as it is not."""
        now = time.monotonic()
        if self._progress.phase is Phase.BINDING and now - self._since > BIND_LIMIT:
            return f"loaded, but did not bind its port in {BIND_LIMIT:.0f} s"
        return LATE if now >= self._began + self._limit else ""

    def tell(self, what: str) -> None:
        self._told = time.monotonic()
        print(f"{self._told - self._began:5.0f} s of at most {self._limit} s: {what}", flush=True)


def follow(start: "subprocess.Popen[bytes]", journal: IO[bytes], follower: Follower) -> str:
    """Tell what the journal says until `start` ends, or waiting has become senseless; what came of it."""
    with selectors.DefaultSelector() as selector:
        selector.register(journal, selectors.EVENT_READ)
        selector.register(os.pidfd_open(start.pid), selectors.EVENT_READ)
        while start.poll() is None:
            for key, _ in selector.select(follower.patience()):
                if key.fileobj is journal and not hear(journal, follower):
                    selector.unregister(journal)
            follower.beat()
            if reason := follower.gives_up():
                start.terminate()
                return reason
    return "failed" if start.returncode else READY


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
                outcome = follow(start, journal.stdout, follower)
        finally:
            journal.terminate()
    follower.tell(outcome)
    return 0 if outcome == READY else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
