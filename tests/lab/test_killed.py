"""Runs that are killed or cut off, and a host that goes down under them: the next run gets to what is declared."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.lab import hosts
from tests.lab.conftest import Deploying, told
from tests.lab.site import Site
from tests.lab.test_deploy import serving
from tests.lab.test_switch import enabled

pytestmark = pytest.mark.long

HOST = "killed"
PORT = 30011
OLD, NEW = "sglang-tiny-tp1.service", "sglang-tiny-tp2.service"

# Every managed file by its hash, but a release, which is too large, by its files' names and sizes; who may do what
# with them; what runs, starts at boot and was accepted; and what nobody should have left behind.
STATE = r"""
cd /
find etc/systemd/system/sglang-* etc/slipway etc/security/limits.d opt/slipway/*.py opt/slipway/host \
    var/lib/slipway/good var/lib/slipway/models -type f ! -path '*/__pycache__/*' -exec sha256sum {} + | sort -k 2
find opt/slipway/releases -type f ! -path '*/__pycache__/*' -printf '%p %s\n' | sort | sha256sum
find opt/slipway etc/slipway var/lib/slipway var/lib/slipway/models -maxdepth 1 -printf '%M %u %g %p\n' | sort
getent passwd sglang
systemctl list-unit-files --no-legend 'sglang-*'
systemctl list-units --plain --no-legend 'sglang-*'
systemctl list-units --all --plain --no-legend 'slipway-*'
ls -A run/systemd/system.control var/lib/slipway/benchmark 2>/dev/null
find opt/slipway var/lib/slipway etc/systemd -name '.*' ! -path '*/lib/python*'
tail -n 1 var/lib/slipway/good.jsonl | sed 's/"at":"[^"]*"//'
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    hosts.reset(HOST)
    yield Site(tmp_path_factory.mktemp(HOST), HOST, PORT)
    hosts.down(HOST)


def ask(command: str, *, check: bool = True) -> str:
    return hosts.run(HOST, command, check=check)


def serves(units: list[str]) -> bool:
    """Whether exactly these answer, and start at boot."""
    return serving(HOST) == units and enabled(HOST) == {*units}


def accepted() -> list[str]:
    line = ask("tail -n 1 /var/lib/slipway/good.jsonl")
    return [f"sglang-{profile}.service" for profile in json.loads(line)["profiles"]]


def process(unit: str) -> str:
    return ask(f"systemctl show --property=MainPID --value {unit}").strip()


def fingerprint(unit: str) -> str:
    return ask(f"tr '\\0' '\\n' < /proc/{process(unit)}/environ | grep SLIPWAY_FINGERPRINT").strip()


def killed_at_each(start: Callable[[], Deploying], sign: Callable[[Deploying], Iterator[str]]) -> list[str]:
    """Kill runs, each at the first sign at which none was killed before, until one meets no new sign and ends.

    So whatever the product comes to do is covered without being named here. Returns the signs.
    """
    met: list[str] = []
    while True:
        run = start()
        for found in sign(run):
            if found not in met:
                met.append(found)
                run.kill()
                break
        else:
            assert run.end() == 0, run.text
            return met


def said_by_operations(run: Deploying) -> Iterator[tuple[str, str]]:
    """What is sent to the host, what that prints, and what came of it, each with the operation that it is of."""
    operation = ""
    for line in run.lines():
        if line.startswith("--> Starting operation: "):
            operation = line.removeprefix("--> Starting operation: ")
        said = line.removeprefix(f"[{HOST}] ")
        if operation and said != line and said != "No changes":
            yield operation, said


def commands(run: Deploying) -> Iterator[str]:
    """Each of an operation's first commands as it is sent, and the first that is heard after it."""
    sent: Counter[str] = Counter()
    heard = True
    for operation, said in said_by_operations(run):
        if not heard:
            yield f"{operation}: after command {sent[operation]} was heard of"
        if heard := not said.startswith(">>> "):
            continue
        sent[operation] += 1
        if heard := sent[operation] > 5:
            continue
        yield f"{operation}: command {sent[operation]} was sent"


def steps(run: Deploying) -> Iterator[str]:
    """What the operation that switches says, whatever the figures in it."""
    for operation, said in said_by_operations(run):
        if operation.endswith("Serve the profile") and said != "Success":
            yield re.sub(r"[0-9.]+", "N", said)


def test_a_bare_host_whose_runs_are_killed_at_every_operation_ends_like_one_deployed_in_peace(site: Site) -> None:
    def start() -> Deploying:
        # It also prints every command that it sends, and what that prints.
        return Deploying("-vvv", inventory=str(site.inventory))

    killed_at = killed_at_each(start, commands)
    print("\n".join(["killed at:", *killed_at]))
    assert len({sign.partition(":")[0] for sign in killed_at}) >= 8
    again = site.deploy()
    assert again.returncode == 0, told(again)
    assert "Success" not in again.stderr.partition("--> Results")[0].partition("Starting operation")[2]
    after_kills = ask(STATE)
    hosts.reset(HOST)
    clean = site.deploy()
    assert clean.returncode == 0, told(clean)
    assert after_kills == ask(STATE)


def test_a_switch_killed_at_every_step_starts_the_server_once(site: Site) -> None:
    assert site.deploy().returncode == 0
    begun = f"journalctl --boot --output=cat --unit={NEW} | grep -c ^Starting"
    before = int(ask(begun, check=False))

    def start() -> Deploying:
        assert enabled(HOST) == {*accepted()}
        return site.deploying("profile=tiny-tp2")

    killed_at = killed_at_each(start, steps)
    print("\n".join(["killed at:", *killed_at]))
    assert any("connecting the ranks" in step for step in killed_at)
    assert int(ask(begun)) == before + 1
    assert serves([NEW])


def test_a_reboot_in_the_middle_of_a_switch_starts_what_was_accepted(site: Site) -> None:
    """The profile that serves was edited, so that the same unit is the old one and the new one."""
    site.profile("edited")
    assert site.deploy("profile=edited").returncode == 0
    before = fingerprint("sglang-edited.service")
    site.profile("edited", environment={"EDITED": "1"})
    run = site.deploying("profile=edited")
    run.until("starting sglang-edited.service")
    hosts.reboot(HOST)
    assert run.end() == 1
    assert serves(["sglang-edited.service"])
    assert fingerprint("sglang-edited.service") == before
    again = site.deploy("profile=edited")
    assert again.returncode == 0, told(again)
    assert serves(["sglang-edited.service"])
    assert fingerprint("sglang-edited.service") != before


def test_a_connection_lost_in_the_middle_of_a_switch_is_made_again_to_go_back(site: Site) -> None:
    assert site.deploy().returncode == 0
    run = site.deploying("profile=tiny-tp2")
    run.until(f"starting {NEW}")
    ask("kill -KILL $(cut -d ' ' -f 1 /run/slipway/deploy.lock)")  # the session that carries the run
    assert run.end() == 1
    assert "the connection was lost" in run.text
    assert f"{OLD} serves again, as before" in run.text
    assert serves([OLD])
    again = site.deploy("profile=tiny-tp2")
    assert again.returncode == 0, told(again)
    assert serves([NEW])


def test_of_two_profiles_on_a_host_each_changes_and_fails_alone(site: Site) -> None:
    one, other = "sglang-one.service", "sglang-other.service"
    both = 'profiles=["one", "other"]'
    site.profile("one", server={"port": PORT})
    site.profile("other", server={"port": PORT + 1})
    run = site.deploy(both)
    assert run.returncode == 0, told(run)
    assert serves([one, other])

    kept = process(one)
    site.profile("other", server={"port": PORT + 1}, environment={"EDITED": "1"})
    run = site.deploy(both)
    assert run.returncode == 0, told(run)
    assert process(one) == kept
    before = fingerprint(other)

    site.profile("other", server={"port": PORT + 1}, environment={"PYTHONPATH": "/nonexistent"})
    run = site.deploy(both)
    assert run.returncode == 1, told(run)
    assert "sgl_kernel" in run.stderr
    assert process(one) == kept
    assert serves([one, other])
    assert fingerprint(other) == before
