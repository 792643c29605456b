"""benchmarks.tools: nothing of a run that is killed stays at work."""

import os
import signal
import subprocess

from benchmarks import tools


def test_what_a_process_started_is_found_in_other_sessions_too() -> None:
    below = "sleep 60 & echo $$ $!; wait"
    command = ["sh", "-c", f"setsid sh -c '{below}' & setsid sh -c '{below}' & wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline(), process.stdout.readline()]
        started = {int(pid) for line in lines for pid in line.split()}
        try:
            assert len(started) == 4
            assert set(tools._descendants(process.pid)) == started
        finally:
            for pid in [process.pid, *started]:
                os.kill(pid, signal.SIGKILL)


def test_a_process_that_is_gone_has_started_nothing() -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    assert tools._descendants(process.pid) == []
