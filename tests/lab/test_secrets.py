"""Keys through a deploy at the highest verbosity: planted, searched for everywhere, and exchanged for others."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.lab import hosts
from tests.lab.conftest import ROOT, Run, ask_hosts, deploy, told
from tests.lab.planted import KEPT, PLANTED, files_on_the_controller, files_on_the_host, shown_by

pytestmark = pytest.mark.usefixtures("lab")


def with_keys(monkeypatch: pytest.MonkeyPatch, folder: Path, api: str, admin: str) -> list[str]:
    """The options that let both keys be found, by two of the ways in which a key can be given."""
    monkeypatch.setenv("TEST_API_KEY", f"{api}-{PLANTED}")
    (folder / "admin").write_text(f"{admin}-{PLANTED}\n")
    command = f'{{"command": ["cat", "{folder}/admin"]}}'
    return ["--data", 'serve_api_key={"env": "TEST_API_KEY"}', "--data", f"serve_admin_key={command}"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


def started_at() -> str:
    return hosts.run("lab", "systemctl show --property=ExecMainStartTimestampMonotonic sglang-tiny-tp1")


@pytest.fixture(scope="module")
def first(folder: Path) -> Run:
    """A deploy with keys to a host that nobody has deployed to, and all that pyinfra can print of it."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        return deploy("-vvv", "--debug", *with_keys(monkeypatch, folder, "api-1", "admin-1"))


def test_a_deploy_with_keys_prints_none(first: Run) -> None:
    assert first.returncode == 0, told(first).replace(PLANTED, "(key)")
    assert "serve | Write the keys" in first.stderr + first.stdout
    assert PLANTED not in first.stdout + first.stderr


def test_what_can_be_read_on_the_host_holds_none(first: Run) -> None:
    commands = (
        "cat /proc/[0-9]*/cmdline",
        "cat /proc/[0-9]*/environ",
        "systemctl show '*'",
        "journalctl --output=export",
        "cat /etc/systemd/system/sglang-*",
    )
    assert shown_by(*commands) == []
    found = files_on_the_host()
    assert found
    assert all(name.startswith(KEPT) for name in found), found


def test_what_is_kept_on_the_controller_holds_none(first: Run) -> None:
    assert files_on_the_controller() == []


def test_the_host_itself_agrees(first: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ask_hosts(*with_keys(monkeypatch, folder, "api-1", "admin-1"))
    assert run.returncode == 0, told(run)


def test_the_same_keys_again_change_nothing(first: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = started_at()
    run = deploy(*with_keys(monkeypatch, folder, "api-1", "admin-1"))
    assert run.returncode == 0, told(run)
    assert "] Success" not in run.stdout + run.stderr
    assert started_at() == before


def test_another_key_restarts_the_server_and_needs_no_other_proof(
    first: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, records = started_at(), hosts.run("lab", "ls /var/lib/slipway/records")
    run = deploy(*with_keys(monkeypatch, folder, "api-2", "admin-1"))
    assert run.returncode == 0, told(run)
    assert started_at() != before
    assert hosts.run("lab", "ls /var/lib/slipway/records") == records
    url = "http://127.0.0.1:30000/v1/models"
    # sudo writes each command to the journal, where other tests look for keys.
    unseen = f"{PLANTED[0]}''{PLANTED[1:]}"
    for key, status in (("api-1", "401"), ("api-2", "200")):
        asked = f"curl -s -o /dev/null -w '%{{http_code}}' -H 'Authorization: Bearer {key}-{unseen}' {url}"
        assert hosts.run("lab", asked) == status


def test_a_key_that_cannot_be_read_ends_the_run_before_anything_is_changed() -> None:
    before = started_at()
    environment = {name: value for name, value in os.environ.items() if name != "TEST_API_KEY"}
    command = [str(ROOT / ".venv/bin/pyinfra"), "-y", "inventory", "deploy.py"]
    key = ["--data", 'serve_api_key={"env": "TEST_API_KEY"}']
    run = subprocess.run([*command, *key], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "serve_api_key: the environment variable TEST_API_KEY is not set" in run.stdout + run.stderr
    assert started_at() == before
