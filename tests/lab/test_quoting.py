"""systemd gives a program the arguments and variables that Slipway writes into a unit, whatever is in them."""

import json
import shlex
from pathlib import Path
from typing import Final

import pytest
import yaml

from roles.jobs import Job, _start_and_follow
from roles.serve.unit import argument, quoted
from tests.evil import EVIL, evil_variables
from tests.lab import hosts
from tests.lab.conftest import ROOT, ask_hosts, deploy, told
from tests.unit.sites import write

pytestmark = pytest.mark.usefixtures("lab")

WORDS: Final = [
    "two words",
    "a 'b' \"c\"",
    "$(touch /injected) `touch /injected`",
    "$HOME ${HOME} $$ $",
    "100% %h %%",
    "-x",
    "--flag=y",
    ";",
    "; touch /injected",
    "back\\slash \\n \\",
    "two\nlines\nExecStartPre=/bin/touch /injected",
    "tab\tx",
    "",
    "é 漢",
    "#",
    "*",
    "@x",
]

SHOW: Final = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]), flush=True)"


def test_a_unit() -> None:
    command = " ".join(map(argument, ["/usr/bin/python3", "-c", SHOW, *WORDS]))
    environment = "\n".join(f"Environment={quoted(f'V{number}={text}')}" for number, text in enumerate(WORDS))
    unit = f"[Service]\nType=oneshot\n{environment}\nStandardOutput=truncate:/root/shown\nExecStart={command}\n"
    path = "/etc/systemd/system/quoting.service"
    hosts.run("lab", f"printf %s {shlex.quote(unit)} > {path} && systemctl daemon-reload && systemctl start quoting")
    arguments, variables = json.loads(hosts.run("lab", "cat /root/shown"))
    assert arguments == WORDS
    assert [variables[f"V{number}"] for number in range(len(WORDS))] == WORDS
    hosts.run("lab", f"rm {path} && systemctl daemon-reload && [ ! -e /injected ]")


def test_a_job() -> None:
    environment = {f"V{number}": text for number, text in enumerate(WORDS)}
    words = shlex.join(["/usr/bin/python3", "-c", SHOW, *WORDS])
    job = Job(name="quoting", command=f'file=/root/shown; {words} > "${{file}}"', environment=environment)
    hosts.run("lab", _start_and_follow(job))
    arguments, variables = json.loads(hosts.run("lab", "cat /root/shown"))
    assert arguments == WORDS
    assert {name: variables[name] for name in environment} == environment
    hosts.run("lab", "[ ! -e /injected ]")


@pytest.mark.long
def test_a_deploy_with_such_text_in_every_setting_that_takes_it(tmp_path: Path) -> None:
    hosts.run(
        "lab", "printf '#!/bin/sh\\ntouch /injected\\n' > /usr/local/bin/injected; chmod 755 /usr/local/bin/injected"
    )
    group = yaml.safe_load((ROOT / "group_vars/lab.yml").read_text())
    for name, value in evil_variables().items():
        group[name] = {**group.get(name, {}), **value} if isinstance(value, dict) else value
    name = "".join(EVIL.split()).lstrip("-")
    profile = {
        "description": EVIL,
        "extends": "tiny-tp1",
        "environment": {"EVIL": EVIL},
        "server": {"served_model_name": name},
    }
    files = {
        "inventory/hosts.yml": (ROOT / "inventory/lab.yml").read_text(),
        "group_vars/lab.yml": yaml.safe_dump({**group, "profile": "evil"}),
        "group_vars/profiles/evil.yml": yaml.safe_dump(profile),
    }
    write(tmp_path, files)
    try:
        run = deploy(inventory=str(tmp_path / "inventory"))
        assert run.returncode == 0, told(run)
        asked = ask_hosts("--inventory", str(tmp_path / "inventory"))
        assert asked.returncode == 0, told(asked)
        environment = hosts.run("lab", "cat /proc/$(systemctl show --property=MainPID --value sglang-evil)/environ")
        assert {f"EVIL={EVIL}", f"X={EVIL}"} <= set(environment.split("\0"))
        hosts.run("lab", "[ ! -e /injected ]")
    finally:
        hosts.run(
            "lab", "systemctl stop sglang-evil; rm -rf /-x* /usr/local/bin/injected /etc/systemd/system/sglang-evil*"
        )
