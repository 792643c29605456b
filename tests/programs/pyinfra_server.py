"""Runs pyinfra command lines, each in a fork of one process, because importing what they need takes seconds.

Reads one JSON list of arguments a line; answers with one JSON list of exit code, stdout and stderr.
"""

import json
import os
import sys
import tempfile

from pyinfra_cli.main import main  # type: ignore[import-untyped]

sys.path.append(".")  # as pyinfra does
import inventory  # noqa: F401


def run(arguments: list[str]) -> tuple[int, str, str]:
    """What `pyinfra ARGUMENTS` does, as seen from outside."""
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(stdout.fileno(), 1)
            os.dup2(stderr.fileno(), 2)
            sys.argv = ["pyinfra", *arguments]
            main()  # ends the process
        _, status = os.waitpid(child, 0)
        for stream in (stdout, stderr):
            stream.seek(0)
        return os.waitstatus_to_exitcode(status), stdout.read(), stderr.read()


for line in sys.stdin:
    print(json.dumps(run(json.loads(line))), flush=True)
