"""Start a server as its unit would, wait for it with the product's own programs, and stop it with proof."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from roles.serve import ready
from roles.serve.command import Command
from roles.serve.failure import Explanation, explain
from roles.serve.start import READY, Follower, follow
from tests.gpu import gpus

TIMED_OUT: Final = 124
"""Exit status of timeout(1)."""
STOP_LIMIT: Final = 60
RELEASE_LIMIT: Final = 30
"""Seconds for a stop, and for the driver to give the memory back."""
SLACK_MIB: Final = 64
"""Memory in use may differ by so much before and after, where the driver does not list processes."""


@dataclass
class Server:
    """A server and its log."""

    process: "subprocess.Popen[bytes]"
    command: Command
    host: str
    log: Path
    used_before_mib: int
    result: str = ""
    """As systemd would call the end of a start that failed."""
    on_gpus: frozenset[int] = frozenset()
    """Its processes that the driver listed when it was ready."""

    def wait(self, limit: int) -> bool:
        """Follow the start as the product does, until the server answers or never will."""
        words = ["timeout", str(limit), sys.executable, ready.__file__, str(self.process.pid), self.host]
        watch = ["tail", "--follow", "--lines=+1", str(self.log)]
        with (
            self.log.open("ab") as journal,
            subprocess.Popen([*words, str(self.command.port)], stderr=journal) as waiting,
            subprocess.Popen(watch, stdout=subprocess.PIPE) as lines,
        ):
            assert lines.stdout is not None
            try:
                status = follow(waiting, lines.stdout, Follower(time.monotonic(), limit))
            finally:
                lines.terminate()
        ended = self.process.poll()
        self.result = "timeout" if waiting.returncode == TIMED_OUT else "signal" if (ended or 0) < 0 else "exit-code"
        self.on_gpus = frozenset(set(ready.family(self.process.pid)) & gpus.processes())
        return status == READY

    def why(self) -> Explanation:
        """Why it did not start, by the product's own reading of the log."""
        ended = self.process.poll()
        return explain(self.text, result=self.result, exit_status=abs(ended) if ended is not None else None)

    @property
    def text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def stop(self) -> str:
        """End it as the unit would: SIGTERM for the main process, SIGKILL for what is left. What is not proved."""
        self.process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_LIMIT)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        return self._left()

    def _left(self) -> str:
        """Wait until the GPUs are free of it; what is left when the driver had its time."""
        end = time.monotonic() + RELEASE_LIMIT
        while left := self._on_gpus():
            if time.monotonic() > end:
                return left
            time.sleep(0.2)
        return ""

    def _on_gpus(self) -> str:
        if self.on_gpus:
            still = self.on_gpus & gpus.processes()
            return f"processes {sorted(still)} on a GPU" if still else ""
        more = gpus.used_mib() - self.used_before_mib
        return f"{more} MiB more in use than before" if more > SLACK_MIB else ""


@contextmanager
def started(command: Command, host: str, log: Path, extra: Sequence[str] = ()) -> Iterator[Server]:
    """A server that has just been started; whatever happens, none of its processes is left."""
    log.write_bytes(b"")
    before = gpus.used_mib()
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*command.argv, *extra],
            env=dict(command.environment),
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield Server(process, command, host, log, before)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
