"""Secrets are named, never written down; and a server that others reach has one."""

import sys
from pathlib import Path

import pytest

from roles.refusal import Refusal
from roles.secret import Secret
from roles.serve.settings import ServeSettings

KEY = "k" * 20


def select(**variables: object) -> ServeSettings:
    return ServeSettings.select(variables, lambda _: "all.yml")


def read(**place: object) -> str:
    return Secret.model_validate(place).value("serve_api_key")


def test_a_key_comes_from_environment_file_or_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SECRET_TEST", KEY)
    (tmp_path / "key").write_text(f"{KEY}\n")
    assert read(env="SECRET_TEST") == KEY
    assert read(file=str(tmp_path / "key")) == KEY
    assert read(command=[sys.executable, "-c", "import sys; print(sys.argv[1])", KEY]) == KEY


@pytest.mark.parametrize("given", [KEY, {"value": KEY}, {"env": "A", "file": KEY}, {}, {"env": [KEY]}, [KEY], 5])
def test_a_key_itself_is_refused_and_not_repeated(given: object) -> None:
    with pytest.raises(Refusal) as refused:
        select(serve_api_key=given)
    assert str(refused.value).startswith(
        "all.yml: serve_api_key: must say where the secret is, not what it is; accepted are {env: NAME}, "
    )
    assert KEY not in str(refused.value)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ({"env": "SECRET_TEST_UNSET"}, "the environment variable SECRET_TEST_UNSET is not set"),
        ({"file": "/nowhere/key"}, "the file /nowhere/key cannot be read: No such file or directory"),
        ({"command": ["/nowhere/program"]}, "the output of /nowhere/program cannot be read: No such file"),
        ({"command": ["false"]}, "false ended with status 1"),
    ],
)
def test_a_key_that_is_not_there_is_one_sentence(place: dict[str, object], said: str) -> None:
    with pytest.raises(Refusal, match=f"^serve_api_key: {said}"):
        read(**place)


@pytest.mark.parametrize(
    "text", ["", "short", "two words of a key", "-" + KEY, KEY + "\n" + KEY, KEY + "$(id)", "é" * 20]
)
def test_what_no_client_could_send_is_refused_and_not_repeated(text: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(text)
    with pytest.raises(Refusal, match="openssl rand") as refused:
        read(file=str(tmp_path / "key"))
    assert not text or text not in str(refused.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "gpu1.example"])
def test_an_address_that_others_reach_needs_a_key_or_a_word(host: str) -> None:
    with pytest.raises(Refusal, match=r"all.yml: serve_host: .* without a key; give serve_api_key, or say `serve_o"):
        select(serve_host=host)
    assert select(serve_host=host, serve_open=True).host == host
    assert select(serve_host=host, serve_api_key={"env": "K"}).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_the_host_itself_needs_none(host: str) -> None:
    assert select(serve_host=host).host == host


def test_an_admin_key_alone_would_be_shown_to_all() -> None:
    with pytest.raises(Refusal, match=r"all.yml: serve_admin_key: needs serve_api_key as well"):
        select(serve_admin_key={"env": "K"})
