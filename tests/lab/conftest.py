"""The local host for tests from end to end: one for all of them, made anew before the first."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab import hosts

ROOT = Path(__file__).parents[2]

Run = subprocess.CompletedProcess[str]
Pyinfra = Callable[..., Run]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A bare host is deployed to first, and the others use what that has built; recorded GPUs come last."""
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    if ROOT / "tests/lab" not in item.path.parents:
        return 0
    if item.path.name == "test_deploy.py":
        return 1
    return 3 if "recorded" in item.path.parts else 2


@pytest.fixture(scope="session")
def lab() -> Iterator[str]:
    """The name of a host that nobody has deployed to."""
    hosts.reset("lab")
    yield "lab"
    hosts.down("lab")


def pyinfra(*arguments: str, timeout: float = 900) -> Run:
    """pyinfra's command line, as a user types it in Slipway's directory."""
    command = [str(Path(sys.executable).with_name("pyinfra")), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)


def deploy(*arguments: str, inventory: str = "inventory") -> Run:
    """`pyinfra -y inventory deploy.py`, and whatever is added."""
    return pyinfra("-y", inventory, "deploy.py", *arguments)


class Deploying:
    """A deploy under way, whose lines are read as they come."""

    def __init__(self, *arguments: str, inventory: str = "inventory", play: str = "deploy.py") -> None:
        command = [str(Path(sys.executable).with_name("pyinfra")), "-y", inventory, play, *arguments]
        self.run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.text = ""

    def lines(self) -> Iterator[str]:
        assert self.run.stderr is not None
        for line in self.run.stderr:
            self.text += line
            yield line.strip()

    def until(self, sign: str) -> None:
        """Follow it until it prints this."""
        assert any(sign in line for line in self.lines()), self.text

    def kill(self) -> None:
        self.run.kill()
        self.run.communicate()

    def interrupt(self) -> None:
        """As Ctrl-C does."""
        self.run.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Its exit code, once it has ended by itself."""
        for _ in self.lines():
            pass
        self.run.communicate()
        return self.run.returncode


def ask_hosts(*arguments: str) -> Run:
    """`pytest tests/host`, and whatever is added."""
    command = [sys.executable, "-m", "pytest", "tests/host", "-q", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def told(run: Run) -> str:
    """All that a run printed, for the message of a failed assertion."""
    return f"exit code {run.returncode}\n{run.stdout}\n{run.stderr}"
