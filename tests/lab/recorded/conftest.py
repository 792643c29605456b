"""The lab host, for these tests with recorded GPUs; the rest of it is real."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.sglang.release import Release, locked_versions
from tests.lab.conftest import pyinfra, told
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
