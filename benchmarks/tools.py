"""The tools that are compared, and how each is run."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Final

import ansible_mitogen  # type: ignore[import-untyped]

from benchmarks.site import Site

_ROOT: Final = Path(__file__).parents[1]
_BIN: Final = Path(sys.executable).parent
_PLAYBOOK: Final = _ROOT / "benchmarks/ansible/site.yml"


def as_a_user_has_it() -> dict[str, str]:
    """The environment, in which Python keeps bytecode."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class Failed(RuntimeError):  # noqa: N818 -- it is what happened
    """A tool did not do what was to be measured; the text is what it printed."""


@dataclass(frozen=True)
class Running:
    """A run under way."""

    began: float
    """Seconds of the monotonic clock."""
    process: int
    output: IO[str]

    def said(self) -> str:
        """All that it has printed."""
        self.output.seek(0)
        return self.output.read()


@dataclass(frozen=True)
class Tool:
    """A tool that makes hosts what a site wants them to be."""

    name: str
    program: str
    changed: re.Pattern[str]
    """Found in the output of a run that changed something, or failed."""
    environment: Mapping[str, str] = field(default_factory=dict)

    def converge(self, site: Site) -> str:
        """What a run prints. Raises Failed if it ends with an error."""
        with self._run(site, subprocess.PIPE) as process:
            output, _ = process.communicate()
        if process.returncode:
            raise Failed(f"{self.name}: exit code {process.returncode}\n{output}")
        return output

    def confirm(self, site: Site) -> float:
        """Seconds that a run takes which has nothing to do. Raises Failed if it found something."""
        began = time.monotonic()
        output = self.converge(site)
        seconds = time.monotonic() - began
        if self.changed.search(output):
            raise Failed(f"{self.name}: something was changed\n{output}")
        return seconds

    @contextmanager
    def running(self, site: Site) -> Iterator["Running"]:
        """A run that is killed at the end."""
        with TemporaryFile("w+") as output, self._run(site, output) as process:
            yield Running(time.monotonic(), process.pid, output)

    @contextmanager
    def _run(self, site: Site, stdout: int | IO[str]) -> Iterator["subprocess.Popen[str]"]:
        """A run with connections of its own, of which nothing is left."""
        with TemporaryDirectory(prefix="bench-") as sockets:
            process = subprocess.Popen(
                [str(_BIN / self.program), *self._arguments(site)],
                cwd=_ROOT,
                env={
                    **as_a_user_has_it(),
                    "ANSIBLE_CONFIG": str(_PLAYBOOK.with_name("ansible.cfg")),
                    "ANSIBLE_SSH_CONTROL_PATH_DIR": sockets,
                    **self.environment,
                },
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            try:
                yield process
            finally:
                if process.poll() is None:
                    for pid in [*_descendants(process.pid), process.pid]:
                        with suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                    process.wait()
                for socket in Path(sockets).iterdir():  # a master of OpenSSH would outlive the run
                    exits = ["ssh", "-o", f"ControlPath={socket}", "-O", "exit", "host"]
                    subprocess.run(exits, capture_output=True, check=False)

    def _arguments(self, site: Site) -> list[str]:
        if self.program == "pyinfra":
            return ["-y", str(site.inventory), "deploy.py"]
        return ["--inventory", str(site.ansible), str(_PLAYBOOK)]


def _descendants(pid: int) -> list[int]:
    """All that a process started, in whatever session: Ansible gives each worker its own."""
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []
    return [*children, *(one for child in children for one in _descendants(child))]


SLIPWAY: Final = Tool("Slipway", "pyinfra", re.compile(r"\] (Success|Error)\b"))
ANSIBLE: Final = Tool("Ansible", "ansible-playbook", re.compile(r"\b(changed|unreachable|failed)=[1-9]"))
MITOGEN: Final = Tool(
    "Ansible with Mitogen",
    "ansible-playbook",
    ANSIBLE.changed,
    {
        "ANSIBLE_STRATEGY": "mitogen_linear",
        "ANSIBLE_STRATEGY_PLUGINS": str(Path(ansible_mitogen.__file__).parent / "plugins/strategy"),
        "ANSIBLE_DEPRECATION_WARNINGS": "false",
    },
)
TOOLS: Final = (SLIPWAY, ANSIBLE, MITOGEN)
