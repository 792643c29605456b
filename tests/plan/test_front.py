"""The role front: off by default, never before a server without a key, and reloaded only if nginx has not read it."""

from typing import Any

import pytest
from pyinfra.api.exceptions import DeployError

from inventory import load
from roles.front.layout import CONFIG, PACKAGES, RUNNING, UNIT_PATH, front_of
from roles.front.settings import FrontSettings
from roles.front.tasks import front
from roles.refusal import Refusal
from tests.plan.conftest import Deploy, Outcome
from tests.unit.shipped import ROOT

ON = {"front_enabled": True, "serve_api_key": {"env": "K"}}


def observed(**programs: str) -> dict[str, str]:
    text = "".join(f"\n::observed:: {name}\n{lines}\n" for name, lines in programs.items())
    return {"::observed:: packages": text, "uname -s": "Linux"}


def bare() -> dict[str, str]:
    return observed(packages="", files="", certificate="", state="inactive", enabled="")


def right(port: int = 443, state: str = "active") -> dict[str, str]:
    wanted = front_of(FrontSettings.select({"front_port": port}, str), "127.0.0.1:30000")
    files = {path: file for file in wanted.files for path in (file.path, RUNNING[file.path])}
    return observed(
        packages="\n".join(f"installed {name}" for name in PACKAGES),
        files="\n".join(f"{file.sha256}  {path}\n644 root root {path}" for path, file in files.items()),
        certificate="yes",
        state=state,
        enabled="enabled",
    )


@pytest.fixture
def deployed(fake_deploy: Deploy) -> Any:
    def run(responses: dict[str, str], **variables: object) -> Outcome:
        data = {"fake_delay": 0, "fake_delay_jitter": 0, "fake_responses": responses, "profile": "tiny-tp1"}
        inventory = load("@fake/host", {**data, "hardware": {"gpus": 0}, **variables}, root=ROOT)
        return fake_deploy(front, inventory=inventory)

    return run


def test_off_it_costs_one_command(deployed: Any) -> None:
    outcome = deployed(bare())
    assert (outcome.changed, len(outcome.commands)) == ([], 1)


def test_on_a_bare_host_gets_nginx_a_certificate_and_a_unit(deployed: Any) -> None:
    outcome = deployed(bare(), **ON)
    assert outcome.changed == [
        "front | Install nginx",
        "front | Make a certificate",
        "front | Write nginx's configuration and unit",
        "front | Let nginx run",
    ]
    text = "\n".join(outcome.commands)
    assert text.index("systemctl mask --quiet --runtime nginx") < text.index("--no-install-recommends")


def test_a_host_that_is_right_is_not_changed(deployed: Any) -> None:
    outcome = deployed(right(), **ON)
    assert (outcome.changed, len(outcome.commands)) == ([], 1)


@pytest.mark.parametrize(
    ("seen", "command"),
    [
        (right(port=8443), "systemctl reload slipway-front"),
        (right(state="failed"), "systemctl restart slipway-front"),
    ],
)
def test_nginx_is_stopped_only_if_it_must_be(deployed: Any, seen: dict[str, str], command: str) -> None:
    assert command in deployed(seen, **ON).commands[-1]


def test_switched_off_its_files_go(deployed: Any) -> None:
    last = deployed(right()).commands[-1]
    assert "systemctl disable --now --quiet slipway-front" in last
    assert CONFIG in last
    assert UNIT_PATH in last


def test_before_a_server_without_a_key_it_is_refused(deployed: Any) -> None:
    with pytest.raises(DeployError, match="front_enabled lets others reach the server without a key"):
        deployed(bare(), front_enabled=True)
    assert deployed(bare(), front_enabled=True, serve_open=True).changed


@pytest.mark.parametrize(
    "variables",
    [
        {"front_name": "a b"},
        {"front_name": "x; include /etc/passwd"},
        {"front_name": "-x"},
        {"front_host": "everywhere"},
        {"front_certificate": "/etc/$host.pem"},
        {"front_certificate": "/etc/x;y"},
        {"front_certificate": "relative.pem"},
        {"front_certificate_key": "/etc/key.pem"},
    ],
)
def test_what_nginx_would_understand_differently_is_refused(variables: dict[str, object]) -> None:
    with pytest.raises(Refusal, match=f"^all.yml: {next(iter(variables))}: "):
        FrontSettings.select(variables, lambda _: "all.yml")


def test_a_given_certificate_and_an_ipv6_address_stand_in_the_configuration() -> None:
    given = {"front_host": "::", "front_certificate": "/etc/c.pem", "front_certificate_key": "/etc/k.pem"}
    wanted = front_of(FrontSettings.select(given, str), "127.0.0.1:30000")
    lines = [line.strip() for line in wanted.config.content.splitlines()]
    assert not wanted.self_signed
    assert {"listen [::]:443 ssl;", "ssl_certificate /etc/c.pem;", "ssl_certificate_key /etc/k.pem;"} <= set(lines)
