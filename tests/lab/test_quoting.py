"""systemd gives a program the arguments and variables that Slipway writes into a unit, whatever is in them."""

import json
import shlex
from typing import Final

import pytest

from roles.jobs import Job, _start_and_follow
from roles.serve.unit import argument, quoted
from tests.lab import hosts

pytestmark = pytest.mark.usefixtures("lab")

EVIL: Final = [
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
    command = " ".join(map(argument, ["/usr/bin/python3", "-c", SHOW, *EVIL]))
    environment = "\n".join(f"Environment={quoted(f'V{number}={text}')}" for number, text in enumerate(EVIL))
    unit = f"[Service]\nType=oneshot\n{environment}\nStandardOutput=truncate:/root/shown\nExecStart={command}\n"
    path = "/etc/systemd/system/quoting.service"
    hosts.run("lab", f"printf %s {shlex.quote(unit)} > {path} && systemctl daemon-reload && systemctl start quoting")
    arguments, variables = json.loads(hosts.run("lab", "cat /root/shown"))
    assert arguments == EVIL
    assert [variables[f"V{number}"] for number in range(len(EVIL))] == EVIL
    hosts.run("lab", f"rm {path} && systemctl daemon-reload && [ ! -e /injected ]")


def test_a_job() -> None:
    environment = {f"V{number}": text for number, text in enumerate(EVIL)}
    words = shlex.join(["/usr/bin/python3", "-c", SHOW, *EVIL])
    job = Job(name="quoting", command=f'file=/root/shown; {words} > "${{file}}"', environment=environment)
    hosts.run("lab", _start_and_follow(job))
    arguments, variables = json.loads(hosts.run("lab", "cat /root/shown"))
    assert arguments == EVIL
    assert {name: variables[name] for name in environment} == environment
    hosts.run("lab", "[ ! -e /injected ]")
