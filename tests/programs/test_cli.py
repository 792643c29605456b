"""The command lines that users type, as pyinfra understands them with config.py."""

import json
import re
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import paramiko
import pytest

from inventory.loader import ROOT
from tests.unit.sites import write


class Result(NamedTuple):
    code: int
    stdout: str
    stderr: str


class Pyinfra:
    """`pyinfra …` from Slipway's directory."""

    def __init__(self, server: "subprocess.Popen[str]") -> None:
        self._server = server

    def __call__(self, *arguments: object) -> Result:
        assert self._server.stdin
        assert self._server.stdout
        print(json.dumps([str(argument) for argument in arguments]), file=self._server.stdin, flush=True)
        return Result(*json.loads(self._server.stdout.readline()))

    def hosts(self, *arguments: object) -> dict[str, dict[str, object]]:
        """The variables of every host, as `debug-inventory --json` prints them."""
        result = self(*arguments, "debug-inventory", "--json")
        assert result.code == 0, result.stderr
        return {host["name"]: host["data"] for host in json.loads(result.stdout)}


@pytest.fixture(scope="module")
def pyinfra() -> Iterator[Pyinfra]:
    command = [sys.executable, str(ROOT / "tests/programs/pyinfra_server.py")]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        yield Pyinfra(server)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    write(
        tmp_path,
        {
            "inventory/hosts.yml": "lab: {hosts: {'@fake/one': , '@fake/two': {serve_port: 30002}}}",
            "group_vars/all.yml": "profile: tiny-tp1\nansible_become: false",
        },
    )
    return tmp_path


def test_a_directory_elsewhere_a_file_of_it_and_hosts_by_name(pyinfra: Pyinfra, site: Path) -> None:
    for source in (site / "inventory", site / "inventory/hosts.yml"):
        found = pyinfra.hosts(source)
        assert sorted(found) == ["@fake/one", "@fake/two"]
        assert found["@fake/two"]["serve_port"] == 30002
        assert found["@fake/one"]["profile"] == "tiny-tp1"
    assert sorted(pyinfra.hosts("@local,localhost")) == ["@local", "localhost"]


def test_the_shipped_directory(pyinfra: Pyinfra) -> None:
    assert "lab" in str(pyinfra("inventory", "debug-inventory"))
    assert pyinfra.hosts("inventory/examples/rtx-pro-6000-x8.yml")["gpu1"]["ssh_user"] == "ubuntu"


def test_data_from_the_command_line(pyinfra: Pyinfra, site: Path) -> None:
    found = pyinfra.hosts(site / "inventory", "--data", "profile=tiny-tp2", "--ssh-user", "me")
    assert {(data["profile"], data["ssh_user"]) for data in found.values()} == {("tiny-tp2", "me")}


@pytest.mark.parametrize("option", ["--dry", "--diff", "-y"])
def test_running_an_operation(pyinfra: Pyinfra, site: Path, option: str) -> None:
    result = pyinfra(site / "inventory", "--limit", "*two", option, "server.shell", "uptime")
    assert result.code == (1 if option == "--diff" else 0), result.stderr  # --diff asks, and nobody answers
    assert "@fake/two" in result.stderr
    assert "@fake/one" not in result.stderr


def test_limit_by_group(pyinfra: Pyinfra, site: Path) -> None:
    result = pyinfra(
        site / "inventory", "--limit", "lab", "--exclude", "*one", "--dry", "--json", "server.shell", "uptime"
    )
    assert result.code == 0
    assert json.loads(result.stdout)["plan"][0]["hosts_with_change"] == ["@fake/two"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["nowhere.invalid"],
            "nowhere.invalid: neither a directory, nor a YAML file, nor a host whose name resolves",
        ),
        (["inventory/lap.yml"], "inventory/lap.yml: no such file or directory; did you mean inventory/lab.yml?"),
        (["@nope"], "@nope: '@nope' is no host's name; accepted are @local"),
        (["SITE/inventory", "--limit", "lba"], "--limit: no host or group matches lba; did you mean lab?"),
        (["SITE/inventory", "--exclude", "lba"], "--exclude: no host or group matches lba; did you mean lab?"),
        (["SITE/inventory", "--data", "profile=tiny-tp"], "--data: profile: unknown profile tiny-tp"),
        (["SITE/inventory", "--data", "sglang_version=0.10"], "with every digit: --data 'sglang_version=\"0.1\"'"),
        (["SITE/inventory", "--data", "profile"], "--data profile: must be name=value"),
        (["SITE/inventory", "--group-data", "x"], "--group-data: not accepted"),
    ],
)
def test_refused(pyinfra: Pyinfra, site: Path, arguments: list[str], said: str) -> None:
    result = pyinfra(*(argument.replace("SITE", str(site)) for argument in arguments), "-y", "server.shell", "uptime")
    assert result.code == 1
    assert said in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr
    assert "pyinfra-debug.log" not in result.stderr
    assert "Connecting" not in result.stderr
    assert not result.stdout


def test_the_pin_is_that_of_the_project() -> None:
    pin = re.findall(r'REQUIRE_PYINFRA_VERSION = "(.+)"', (ROOT / "config.py").read_text())
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert [f"pyinfra{version}" for version in pin] == [name for name in dependencies if name.startswith("pyinfra")]


def shows_a_key(listener: socket.socket) -> None:
    """An SSH server up to the point where the client knows its key, once."""
    connection, _ = listener.accept()
    with connection, paramiko.Transport(connection) as transport:
        transport.add_server_key(paramiko.ECDSAKey.generate())
        with suppress(paramiko.SSHException, EOFError):  # the client leaves
            transport.start_server(server=paramiko.ServerInterface())
        transport.join()


def test_a_host_with_an_unknown_key_is_refused_and_says_how_to_know_it(
    pyinfra: Pyinfra, site: Path, tmp_path: Path
) -> None:
    known_hosts = tmp_path / "known_hosts"
    known_hosts.touch()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        server = threading.Thread(target=shows_a_key, args=(listener,))
        server.start()
        hosts = f"box: {{hosts: {{box: {{ansible_host: 127.0.0.1, ansible_port: {port}}}}}}}"
        write(site, {"inventory/hosts.yml": hosts})
        result = pyinfra(
            site / "inventory", "--data", f"ssh_known_hosts_file={known_hosts}", "-y", "server.shell", "uptime"
        )
        server.join()
    assert result.code == 1
    assert f"ssh-keyscan -p {port} 127.0.0.1 >> {known_hosts}" in result.stderr
    assert "SHA256:" in result.stderr
    assert "Traceback" not in result.stderr
    assert known_hosts.read_text() == ""
