"""Secrets on their way to a host: written once, removed when no longer declared, seen by nobody."""

import getpass
import subprocess
from pathlib import Path

import pytest
from pyinfra.api.deploy import deploy
from pyinfra.context import host

from roles import credentials
from roles.credentials import Credential, changed_credentials, credentials_in_place, exported
from roles.paths import CREDENTIALS
from roles.secret import Secret
from tests.plan.conftest import Deploy

KEY, OTHER = "0123456789abcdef", "fedcba9876543210"


def told(program: str, folder: Path, *wanted: Credential) -> list[str]:
    """What one of the module's shell programs prints when this machine is the host."""
    here = program.replace(CREDENTIALS, f"{folder}/etc/credentials").replace(
        str(Path(CREDENTIALS).parent), f"{folder}/etc"
    )
    here = here.replace("-o root -g root", "").replace("600 root", f"600 {getpass.getuser()}")
    done = subprocess.run(
        ["sh", "-c", here], input=credentials._lines(wanted), capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_what_differs_is_found_and_written(tmp_path: Path) -> None:
    wanted = [Credential("api-key", KEY), Credential("admin-key", None)]
    assert told(credentials._CHANGED, tmp_path, *wanted) == ["api-key"]
    told(credentials._WRITE, tmp_path, *wanted)
    folder = tmp_path / "etc/credentials"
    assert {file.name: file.read_text() for file in folder.iterdir()} == {"api-key": f"{KEY}\n"}
    assert (folder.stat().st_mode & 0o777, (folder / "api-key").stat().st_mode & 0o777) == (0o700, 0o600)
    assert told(credentials._CHANGED, tmp_path, *wanted) == []
    assert told(credentials._CHANGED, tmp_path, Credential("api-key", OTHER), wanted[1]) == ["api-key"]
    (folder / "api-key").chmod(0o644)
    assert told(credentials._CHANGED, tmp_path, *wanted) == ["api-key"]
    gone = [Credential("api-key", None)]
    assert told(credentials._CHANGED, tmp_path, *gone) == ["api-key"]
    told(credentials._WRITE, tmp_path, *gone)
    assert list(folder.iterdir()) == []


@deploy("keys")
def keys() -> None:
    wanted = [Credential("api-key", KEY), Credential("admin-key", OTHER)]
    credentials_in_place(name="Write the keys", changed=changed_credentials(host, wanted))


@pytest.mark.parametrize(("answer", "changed"), [("admin-key", ["keys | Write the keys"]), ("", [])])
def test_no_command_holds_a_secret(fake_deploy: Deploy, answer: str, changed: list[str]) -> None:
    outcome = fake_deploy(keys, {"while read": answer})
    assert outcome.changed == changed
    assert len(outcome.commands) == 1 + len(changed)
    assert KEY not in str(outcome.commands)
    assert OTHER not in str(outcome.commands)


def test_a_credential_does_not_show_its_value_where_it_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_CREDENTIAL", KEY)
    credential = Credential.of("api-key", Secret.model_validate({"env": "TEST_CREDENTIAL"}), "serve_api_key")
    assert credential.value == KEY
    assert KEY not in repr([credential])


def test_a_command_gets_a_secret_in_its_environment() -> None:
    assert exported({"TOKEN": "hub-token"}) == f'TOKEN="$(cat {CREDENTIALS}/hub-token)" '
