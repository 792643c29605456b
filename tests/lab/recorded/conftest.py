"""The lab host, for these tests with recorded GPUs; the rest of it is real."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.sglang.release import Release, locked_versions
from tests.lab import hosts
from tests.lab.conftest import Run, pyinfra, told
from tests.lab.places import KEY, KNOWN_HOSTS, Place
from tests.lab.recorded import become

HOST = "lab"
RELEASE = Release.of(locked_versions()[-1])


def write_inventory(folder: Path, **variables: object) -> str:
    """An inventory with this one host; returns what to call it on pyinfra's command line."""
    connection = {
        "profile": "tiny-tp1",
        "ansible_become": True,
        "ansible_host": "127.0.0.1",
        "ansible_port": Place(HOST).port,
        "ansible_user": "deploy",
        "ansible_ssh_private_key_file": str(KEY),
        "ssh_known_hosts_file": str(KNOWN_HOSTS),
        "ssh_strict_host_key_checking": "yes",
    }
    (folder / "hosts.yml").write_text(json.dumps({"all": {"hosts": {HOST: connection | variables}}}))
    return str(folder)


def run_cuda(inventory: str, **variables: str) -> Run:
    """Run the role cuda."""
    data = [word for name, value in variables.items() for word in ("--data", f"{name}={value}")]
    return pyinfra("-y", inventory, "roles.cuda.tasks.cuda", *data)


def changes(run: Run) -> list[str]:
    """The operations that did not say `No changes`."""
    parts = (run.stdout + run.stderr).split("Starting operation: ")[1:]
    return [part.splitlines()[0].strip() for part in parts if "No changes" not in part]


@pytest.fixture(scope="session")
def host(lab: str) -> Iterator[str]:
    """The host, which is itself again afterwards."""
    yield lab
    become(lab, "none")


@pytest.fixture(scope="session")
def host_with_release(host: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The host with a release of SGLang and its toolkit."""
    become(host, "none")
    inventory = write_inventory(tmp_path_factory.mktemp("inventory"), hardware={"gpus": 0})
    for role in ("base", "sglang", "cuda"):
        done = pyinfra("-y", inventory, f"roles.{role}.tasks.{role}")
        assert done.returncode == 0, told(done)
    return host


@pytest.fixture(scope="module")
def mirror(host_with_release: str) -> Iterator[dict[str, object]]:
    """Variables of a repository that stands in for NVIDIA's; it lasts as long as the tests of one file."""
    from tests.lab.recorded import repository  # which needs this module

    hosts.run(HOST, repository.UNDO, check=False)
    yield {"cuda_apt_mirror": f"file://{repository.FOLDER}", "cuda_apt_key": hosts.run(HOST, repository.MAKE)}
    become(HOST, "none")
    hosts.run(HOST, repository.UNDO, check=False)
