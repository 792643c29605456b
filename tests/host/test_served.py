"""What serve and benchmark make true: exactly the declared profiles serve, as declared, and performed."""

import json
import re
import shlex
from typing import Final

import pytest
from pyinfra.api.host import Host as Declaration
from testinfra.host import Host

from inventory import PREVIOUS, target
from roles.benchmark.name import Name
from roles.benchmark.settings import BenchmarkSettings
from roles.credentials import path
from roles.paths import RECORDS
from roles.serve.candidate import Candidate
from roles.serve.command import served_name
from roles.serve.declared import Declared, declared
from roles.serve.good import GOOD_HISTORY, acceptances, accepted
from roles.serve.keys import API_KEY
from roles.serve.settings import ServeSettings
from roles.serve.steps import LAST_FAILURE

EXPOSURE: Final = 3.0
"""The worst that `systemd-analyze security` may say of a unit, of 10."""


@pytest.fixture(scope="module")
def could_serve(declaration: Declaration) -> Declared:
    return declared(declaration)


@pytest.fixture(scope="module")
def history(host: Host) -> list[str]:
    lines: list[str] = host.check_output(f"cat {GOOD_HISTORY}").splitlines()
    return lines


@pytest.fixture(scope="module")
def candidates(could_serve: Declared, declaration: Declaration, history: list[str]) -> list[Candidate]:
    """The wanted profiles; none if the host is declared to serve nothing."""
    if ServeSettings.of(declaration).state == "stopped":
        return []
    variables = target(declaration).variables
    names = variables.profiles or (variables.profile,)
    if variables.profile == PREVIOUS:
        names = tuple(accepted(acceptances(history)))
    return could_serve.wanted(names, declaration.name)


def asking(candidate: Candidate, *arguments: str) -> str:
    """A curl command, with the server's key from its file where it has one: not even for a moment in an argument."""
    curl = shlex.join(["curl", "-fsS", *arguments])
    if API_KEY not in candidate.keys:
        return curl
    header = f'printf \'header = "Authorization: Bearer %s"\' "$(cat {path(API_KEY)})"'
    return f"{header} | {curl} --config -"


def test_every_unit_is_as_declared(host: Host, could_serve: Declared) -> None:
    found = {
        name: host.file(candidate.unit.path).content_string for name, candidate in could_serve.candidates.items()
    }
    assert found == {name: candidate.unit.content for name, candidate in could_serve.candidates.items()}


def test_exactly_the_wanted_units_run_and_start_at_boot(host: Host, candidates: list[Candidate]) -> None:
    wanted = {candidate.unit_name for candidate in candidates}
    running = host.check_output(
        "systemctl list-units --plain --no-legend --state=active,activating 'sglang-*.service'"
    )
    enabled = host.check_output("systemctl list-unit-files --no-legend --state=enabled 'sglang-*.service'")
    failed = host.run("cat %s", LAST_FAILURE).stdout
    assert {line.split()[0] for line in running.splitlines()} == wanted, failed
    assert {line.split()[0] for line in enabled.splitlines()} == wanted


def test_the_port_is_open_where_it_is_declared(host: Host, candidates: list[Candidate]) -> None:
    for candidate in candidates:
        assert host.socket(f"tcp://{candidate.address}:{candidate.command.port}").is_listening


def test_the_running_process_is_the_declared_one(host: Host, candidates: list[Candidate]) -> None:
    for candidate in candidates:
        pid = host.check_output("systemctl show --property=MainPID --value %s", candidate.unit_name).strip()
        environment = host.check_output(f"tr '\\0' '\\n' < /proc/{pid}/environ").splitlines()
        assert f"SLIPWAY_FINGERPRINT={candidate.command.fingerprint}" in environment


def test_the_server_says_that_it_has_the_declared_flags(host: Host, candidates: list[Candidate]) -> None:
    for candidate in candidates:
        said = json.loads(host.check_output(asking(candidate, f"{candidate.url}/server_info")))
        flags = {
            name: value for name, value in candidate.profile.server.items() if not isinstance(value, dict | list)
        }
        assert {name: said[name] for name in flags} == flags


def test_it_answers_a_chat(host: Host, candidates: list[Candidate]) -> None:
    for candidate in candidates:
        asked = {
            "model": served_name(candidate.profile),
            "messages": [{"role": "user", "content": "Say something."}],
            "max_tokens": 8,
        }
        sent = ["-H", "Content-Type: application/json", "-d", json.dumps(asked)]
        answer = json.loads(host.check_output(asking(candidate, *sent, f"{candidate.url}/v1/chat/completions")))
        assert answer["usage"]["completion_tokens"] > 0
        assert answer["model"] == asked["model"]


def test_without_the_key_nothing_is_answered(host: Host, candidates: list[Candidate]) -> None:
    for candidate in candidates:
        if API_KEY in candidate.keys:
            asked = host.check_output("curl -sS -o /dev/null -w '%%{http_code}' %s", f"{candidate.url}/v1/models")
            assert asked == "401"


def test_keys_are_where_root_and_the_server_read_them_and_nowhere_else(
    host: Host, candidates: list[Candidate]
) -> None:
    for candidate in candidates:
        for key in candidate.keys:
            file = host.file(path(key))
            assert (file.user, f"{file.mode:04o}") == ("root", "0600")
            shown = {
                "its unit": f"systemctl cat {candidate.unit_name}",
                "its properties": f"systemctl show {candidate.unit_name}",
                "its journal": f"journalctl --output=cat --unit={candidate.unit_name}",
                "command lines": "cat /proc/[0-9]*/cmdline",
                "environments": "cat /proc/[0-9]*/environ",
                "records": f"cat {RECORDS}/*",
                "what everyone reads": "find /etc /opt/slipway/host /var/lib/slipway /var/cache/slipway /run /tmp "
                "-xdev -type f -perm -o=r -size -1000k -exec cat {} +",
            }
            for where, command in shown.items():
                count = host.run(f"({command}) 2>/dev/null | grep --text --count --fixed-strings --file={path(key)}")
                assert (where, count.stdout.strip()) == (where, "0")


def test_the_server_is_sandboxed(host: Host, candidates: list[Candidate]) -> None:
    for candidate in candidates:
        said = host.run("systemd-analyze security --no-pager %s", candidate.unit_name).stdout
        exposure = re.search(r"Overall exposure level for .*?: ([0-9.]+)", said)
        assert exposure
        assert float(exposure[1]) <= EXPOSURE


def test_what_runs_was_accepted(candidates: list[Candidate], history: list[str]) -> None:
    if not candidates:
        pytest.skip("the host is declared to serve nothing")
    assert accepted(acceptances(history)) == {c.profile.name: c.command.fingerprint for c in candidates}


def test_an_accepted_benchmark_record_proves_it(
    host: Host, candidates: list[Candidate], declaration: Declaration
) -> None:
    if BenchmarkSettings.of(declaration).level == "off":
        pytest.skip("the benchmark is off")
    for candidate in candidates:
        names = [Name.parsed(line) for line in host.check_output(f"ls -1 {RECORDS}").splitlines()]
        proven = [
            name for name in names if name and (name.profile, name.outcome) == (candidate.profile.name, "accepted")
        ]
        records = [json.loads(host.file(f"{RECORDS}/{name}").content_string) for name in proven]
        assert candidate.command.fingerprint in {record["fingerprint"] for record in records}
