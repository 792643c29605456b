"""Switches that go wrong, on real servers: the old profile serves again, or the next run converges."""

import re
from collections.abc import Iterator

import pytest

from roles.benchmark.record import Record
from tests.lab import hosts
from tests.lab.conftest import ROOT, Deploying, deploy, told
from tests.lab.test_deploy import serving

OLD = "sglang-tiny-tp1.service"


@pytest.fixture(scope="module", autouse=True)
def _old_profile_serves(lab: str) -> None:
    run = deploy()
    assert run.returncode == 0, told(run)


@pytest.fixture
def nothing_lost() -> Iterator[None]:
    """The history and the records only grow."""

    def kept() -> set[str]:
        return set(hosts.run("lab", "ls /var/lib/slipway/records; cat /var/lib/slipway/good.jsonl").splitlines())

    before = kept()
    yield
    assert before <= kept()


def enabled(host: str = "lab") -> set[str]:
    listed = "systemctl list-unit-files --no-legend --state=enabled 'sglang-*'"
    lines = hosts.run(host, listed, check=False).splitlines()  # none is an error to systemctl
    return {line.split()[0] for line in lines}


def deploying(profile: str) -> Deploying:
    """A deploy that has stopped the old server and is starting the new one."""
    run = Deploying("--data", f"profile={profile}")
    run.until(f"starting sglang-{profile}.service")
    return run


@pytest.mark.usefixtures("nothing_lost")
def test_a_profile_that_dies_in_its_first_forward_pass_is_explained_and_undone() -> None:
    run = deploy("--data", "profile=tiny-moe-tp2-ep2")
    assert run.returncode == 1, told(run)
    assert "first forward pass" in run.stderr
    assert "index -1 is out of bounds" in run.stderr
    assert serving() == [OLD]
    assert enabled() == {OLD}
    assert "tiny-moe-tp2-ep2" in hosts.run("lab", "cat /var/lib/slipway/last-failure.txt")
    (name,) = hosts.run("lab", "cd /var/lib/slipway/records && ls *.tiny-moe-tp2-ep2.*.failed.json").split()
    record = Record.read_json((ROOT / "results/lab" / name).read_text(), name)
    assert "first forward pass" in str(record.failure)


def test_a_port_that_someone_else_holds_is_found_before_anything_stops() -> None:
    hosts.run("lab", "systemd-run --quiet --unit=squatter python3 -m http.server 30001 --bind 127.0.0.1")
    try:
        since = hosts.run("lab", f"systemctl show --property=ActiveEnterTimestampMonotonic {OLD}")
        run = deploy("--data", "profile=tiny-tp2", "--data", "serve_port=30001")
        assert run.returncode == 1, told(run)
        assert re.search(r"port 30001 is held by process \d+ \(.*http\.server.*\) of squatter\.service", run.stderr)
        assert hosts.run("lab", f"systemctl show --property=ActiveEnterTimestampMonotonic {OLD}") == since
    finally:
        hosts.run("lab", "systemctl stop squatter")


def test_a_second_run_at_once_is_told_who_is_at_work() -> None:
    first = deploying("tiny-pp2")
    try:
        second = deploy("--data", "profile=tiny-tp2")
        assert second.returncode == 1, told(second)
        assert re.search(r"another run is at work, of \S+ since \d\d:\d\d:\d\d UTC", second.stderr)
    finally:
        first.interrupt()
    # Ctrl-C in the middle of a switch: the old profile serves again.
    assert first.end() == 1
    assert serving() == [OLD]
    assert enabled() == {OLD}


@pytest.mark.usefixtures("nothing_lost")
def test_a_run_killed_in_the_middle_is_completed_by_the_next() -> None:
    run = deploying("tiny-tp2")
    run.kill()
    assert enabled() == {OLD}
    again = deploy("--data", "profile=tiny-tp2")
    assert again.returncode == 0, told(again)
    assert serving() == ["sglang-tiny-tp2.service"]
    assert enabled() == {"sglang-tiny-tp2.service"}


def test_starting_another_unit_by_hand_stops_the_first_and_a_deploy_mends_it() -> None:
    hosts.run("lab", "systemctl start sglang-tiny-tp1")
    assert serving() == [OLD]
    run = deploy("--data", "profile=tiny-tp2")
    assert run.returncode == 0, told(run)
    assert serving() == ["sglang-tiny-tp2.service"]


def test_a_reboot_brings_the_accepted_profile_back_and_active_means_that_it_answers() -> None:
    hosts.reboot("lab")
    hosts.run("lab", "systemctl start sglang-tiny-tp2")
    assert "tiny" in hosts.run("lab", "curl -fsS http://127.0.0.1:30000/v1/models")


def test_stopped_is_a_state_like_any_other() -> None:
    for _ in range(2):
        run = deploy("--data", "serve_state=stopped")
        assert run.returncode == 0, told(run)
        assert serving() == []
        assert enabled() == set()


def test_the_time_between_old_and_new_is_the_servers_own() -> None:
    """What Slipway adds to SGLang's own start: from the old unit's end to the new one's first process, and after."""
    assert deploy().returncode == 0
    assert deploy("--data", "profile=tiny-tp2").returncode == 0
    stopped = _monotonic(OLD, "InactiveEnterTimestampMonotonic")
    began = _monotonic("sglang-tiny-tp2.service", "ExecMainStartTimestampMonotonic")
    active = _monotonic("sglang-tiny-tp2.service", "ActiveEnterTimestampMonotonic")
    ready = _logged("sglang-tiny-tp2.service", "The server is fired up and ready to roll!")
    added = (began - stopped) + (active - ready)
    print(f"Slipway's own share of the time without a server: {added:.2f} s")
    assert added < 2


def _monotonic(unit: str, name: str) -> float:
    """Seconds of the host's monotonic clock."""
    return int(hosts.run("lab", f"systemctl show --property={name} --value {unit}")) / 1e6


def _logged(unit: str, text: str) -> float:
    """When the unit last logged `text`, in the same seconds."""
    lines = hosts.run("lab", f"journalctl --unit={unit} --output=short-monotonic | grep -F {text!r}").splitlines()
    found = re.match(r"\[ *([\d.]+)\]", lines[-1])
    assert found
    return float(found[1])
