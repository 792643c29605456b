"""Text that a shell or systemd would take for more than text: it stays text, or is refused."""

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.deploy import deploy

from inventory import load
from roles.base.tasks import base
from roles.benchmark.tasks import benchmark, gate, keep_failure
from roles.front.tasks import front
from roles.jobs import Job, _start_and_follow
from roles.refusal import Refusal
from roles.serve.tasks import serve
from roles.sglang.tasks import sglang
from roles.weights.tasks import weights
from tests.evil import EVIL, evil_variables
from tests.plan.conftest import Deploy, Outcome

# A restricted shell writes no files and runs nothing but what is in its PATH; every other command seems to succeed.
# What is expanded in a command that is not run is expanded all the same.
PRELUDE = """
command_not_found_handle() { return 0; }
cd() { :; }
exec() { "$@"; }
systemd-run() { eval "$(printf %s "${@: -1}" | sed 's/\\$\\$/$/g')"; }
"""


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PATH in which `injected` leaves a mark."""
    folder = tmp_path_factory.mktemp("stubs")
    (folder / "injected").write_text(f"#!/bin/sh\necho injected >> {folder}/mark\n")
    (folder / "injected").chmod(0o755)
    (folder / "sed").symlink_to("/bin/sed")
    return folder


def is_broken(stubs: Path, *commands: str) -> bool:
    """Whether a shell that gets one of these commands runs `injected`, or cannot read the command at all."""
    (stubs / "mark").unlink(missing_ok=True)
    script = stubs / "script"
    script.write_text(PRELUDE + "".join(f"( eval {shlex.quote(command)} )\n" for command in commands))
    shell = ["/bin/bash", "--restricted", str(script)]
    done = subprocess.run(shell, env={"PATH": str(stubs)}, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return (stubs / "mark").exists() or b"syntax error near" in done.stderr or b"unexpected EOF" in done.stderr


def test_the_shell_of_these_tests_would_notice(stubs: Path) -> None:
    assert is_broken(stubs, f"apt-get install {EVIL}")
    assert is_broken(stubs, f'echo "{EVIL}" > /x')
    assert is_broken(stubs, 'echo "$(injected)" > /x')
    assert is_broken(stubs, f"install -d /x && rm -rf /{EVIL}")
    assert is_broken(stubs, "systemd-run sh -c 'injected'")
    assert not is_broken(stubs, "echo 'injected'; systemd-run sh -c \"echo 'injected'\"")


def test_some_variables_take_such_text() -> None:
    """Or the next tests would prove nothing."""
    assert {"serve_environment", "sglang_uv_cache", "weights_root"} <= evil_variables().keys()


@deploy("everything")
def everything() -> None:
    base()
    sglang()
    weights()
    serve(gate=gate, keep_failure=keep_failure)
    benchmark()
    front()


PROFILE = {
    "description": EVIL,
    "extends": "tiny-tp1",
    "environment": {"EVIL": EVIL},
    "server": {"served_model_name": "".join(EVIL.split()), "chat_template": EVIL},
    "findings": [{"text": EVIL, "source": EVIL}],
}


@pytest.fixture(scope="module")
def evil_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("site")
    (root / "group_vars/profiles").mkdir(parents=True)
    (root / "group_vars/profiles/evil.yml").write_text(json.dumps(PROFILE))
    (root / "inventory").mkdir()
    (root / "inventory/hosts.yml").write_text("all: {hosts: {'@fake/host': }}")
    return root / "inventory"


@pytest.fixture(scope="module")
def variables() -> dict[str, Any]:
    fake = {"fake_delay": 0, "fake_delay_jitter": 0, "fake_responses": {}}
    keys = {"serve_api_key": {"env": "EVIL_API_KEY"}, "front_enabled": True, "benchmark_level": "off"}
    return {**fake, **keys, "profile": "evil", "hardware": {"gpus": 0}, "ansible_become": False, **evil_variables()}


@pytest.fixture
def deployed(
    fake_deploy: Deploy, evil_site: Path, variables: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> Outcome:
    monkeypatch.setenv("EVIL_API_KEY", "0123456789abcdef")
    names = (
        "packages",
        "lock",
        "files",
        "units",
        "history",
        "credentials",
        "weights",
        "token",
        "rsync",
        "uv",
        "state",
    )
    more = (
        "user",
        "directories",
        "distribution",
        "release",
        "records",
        "gpus",
        "certificate",
        "enabled",
        "checkpoints",
    )
    lines = [f"::observed:: {name}" for name in (*names, *more)]
    known = ["::observed:: apt", "/usr/bin/apt-get", "::observed:: machine", "x86_64"]
    known += ["::observed:: user", "sglang:x:999:999::/var/lib/slipway:/usr/sbin/nologin"]
    known += ["::observed:: units", "sglang-evil.service disabled inactive no none current"]
    known += ["::observed:: python", "3.11.2", "::observed:: free", "99999999999999", "::observed:: lock", "taken"]
    answers = {
        "::observed::": "\n".join([*lines, *known]),
        "uname -s": "Linux",
        "smoke.py": '{"passed": true, "seconds": 1, "memory": {}}',
    }
    return fake_deploy(everything, inventory=load(str(evil_site), {**variables, "fake_responses": answers}))


def test_no_command_of_a_deploy_runs_what_a_variable_says(deployed: Outcome, stubs: Path) -> None:
    evil = [command for command in deployed.commands if "injected" in command]
    assert len(evil) > 5
    if is_broken(stubs, *evil):
        assert [command for command in evil if is_broken(stubs, command)] == []


def test_a_job_gets_its_environment_and_its_program_as_they_are(stubs: Path) -> None:
    job = Job(
        name="evil", command='x=1; echo "${x}" $$', environment={"EVIL": EVIL}, credentials={"token": f"/{EVIL}"}
    )
    command = _start_and_follow(job)
    assert not is_broken(stubs, command)
    assert 'x=1; echo "$${x}" $$$$' in command  # systemd makes one of two


def test_control_characters_are_refused_wherever_they_stand(evil_site: Path, variables: dict[str, Any]) -> None:
    with pytest.raises(Refusal, match=r"--data: serve_environment.A: a control character is not accepted"):
        load(str(evil_site), {**variables, "serve_environment": {"A": "a\rExecStartPre=/bin/injected"}})


def test_control_characters_in_a_profile_are_refused(tmp_path: Path) -> None:
    (tmp_path / "group_vars/profiles").mkdir(parents=True)
    (tmp_path / "group_vars/profiles/p.yml").write_text(
        json.dumps({"extends": "tiny-tp1", "description": "D.\rExecStartPre=/bin/injected"})
    )
    (tmp_path / "hosts.yml").write_text("all: {hosts: {'@fake/host': {profile: p, ansible_become: false}}}")
    with pytest.raises(Refusal, match=r"profiles/p\.yml: description: a control character is not accepted"):
        load(str(tmp_path / "hosts.yml"))


@pytest.mark.parametrize(
    "variables", [{"serve_environment": {"A B": "x"}}, {"base_packages": ["x; injected"]}, {"base_packages": ["-x"]}]
)
def test_names_that_are_none_are_refused(variables: dict[str, Any], evil_site: Path) -> None:
    with pytest.raises(Refusal, match=f"^--data: {next(iter(variables))}"):
        load(str(evil_site), {"profile": "evil", **variables})
