"""A lab host of its own for these tests: its GPUs are recorded, the rest is real."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.sglang.release import Release, locked_versions
from tests.lab import hosts
from tests.lab.conftest import pyinfra, told
from tests.lab.places import CHECKOUT, KEY, KNOWN_HOSTS, Place
from tests.lab.recorded import become

HOST = "lab8"
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


@pytest.fixture(scope="session")
def host() -> Iterator[str]:
    """The host, as it comes."""
    subprocess.run([sys.executable, "-m", "tests.lab", "up", HOST], cwd=CHECKOUT, check=True)
    yield HOST
    hosts.down(HOST)


@pytest.fixture(scope="session")
def host_with_release(host: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The host with a release of SGLang and its toolkit."""
    become(host, "none")
    inventory = write_inventory(tmp_path_factory.mktemp("inventory"), hardware={"gpus": 0})
    for role in ("base", "sglang", "cuda"):
        done = pyinfra("-y", inventory, f"roles.{role}.tasks.{role}")
        assert done.returncode == 0, told(done)
    return host
