"""Whatever is changed by hand on a host, the next run puts right: each thing that Slipway manages there."""

import shlex

import pytest
from pyinfra.api.config import Config
from pyinfra.api.host import Host
from pyinfra.api.state import State

from inventory import load, target
from roles.base.layout import DIRECTORIES, LIMITS
from roles.files import File, Seen, files_program, files_seen
from roles.paths import STATE, USER
from roles.serve import programs
from roles.serve.declared import declared
from roles.sglang.release import Release
from roles.sglang.settings import SglangSettings
from roles.weights.layout import directory
from roles.weights.settings import WeightsSettings
from tests.lab import hosts
from tests.lab.conftest import ROOT, deploy, pyinfra, told
from tests.lab.test_deploy import outcomes, serving

HOST = "lab"
INVENTORY = "inventory"
SERVES, ANOTHER = "sglang-tiny-tp1.service", "sglang-tiny-tp2.service"

BOOTED, SWITCH = "serve | Write the units that a boot starts", "serve | Serve the profile"
FILES = {
    "base | Set the limits of the service's user",
    "serve | Write the programs",
    "serve | Write the units",
    BOOTED,
}
"""The operations that write files."""

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("deployed")]


@pytest.fixture(scope="module")
def deployed(lab: str) -> None:
    converge()


@pytest.fixture(scope="module")
def host() -> Host:
    """The host as the inventory declares it."""
    inventory = load(ROOT / INVENTORY)
    State(inventory, Config())
    found = inventory.get_host(HOST)
    assert isinstance(found, Host)
    return found


@pytest.fixture(scope="module")
def files(host: Host) -> list[File]:
    """Every file that Slipway keeps on it."""
    return [LIMITS, *programs.FILES, *(candidate.unit for candidate in declared(host).candidates.values())]


def converge() -> dict[str, str]:
    run = deploy(inventory=INVENTORY)
    assert run.returncode == 0, told(run)
    return outcomes(run)


def changes() -> set[str]:
    return {name for name, outcome in converge().items() if outcome != "No changes"}


def seen(files: list[File]) -> dict[str, Seen]:
    return files_seen(hosts.run(HOST, files_program(file.path for file in files), check=False).splitlines())


def wanted(files: list[File]) -> dict[str, Seen]:
    return {file.path: file.as_seen for file in files}


def test_no_other_files_are_left_where_these_are(files: list[File]) -> None:
    places = "/opt/slipway/host /etc/systemd/system /etc/security/limits.d"
    there = (
        f"find {places} -type f \\( -path '*/host/*' -o -name 'sglang-*' -o -name '*slipway*' \\) -not -name '*.pyc'"
    )
    assert set(hosts.run(HOST, there).splitlines()) == {file.path for file in files}


@pytest.mark.parametrize("change", ["echo '# by hand' >>", "chmod 0600", f"chown {USER}", "chgrp daemon", "rm"])
def test_every_file_is_put_back(change: str, files: list[File]) -> None:
    before = seen(files)
    assert before == wanted(files)
    hosts.run(HOST, "\n".join(f"{change} {shlex.quote(file.path)}" for file in files))
    damaged = seen(files)
    assert not set(before.items()) & set(damaged.items())
    foretold = pyinfra("--dry", "--diff", INVENTORY, "deploy.py")
    assert foretold.returncode == 0, told(foretold)
    assert seen(files) == damaged
    assert foretold.stderr.count("-# by hand") == (len(files) if change.startswith("echo") else 0), told(foretold)
    # A unit without a file is not enabled, either.
    assert changes() == (FILES - {BOOTED} | {SWITCH} if change == "rm" else FILES)
    assert seen(files) == before
    assert changes() == set()
    assert serving(HOST) == [SERVES]


@pytest.mark.parametrize("change", ["chmod 0777", "chown daemon", "chgrp daemon"])
def test_every_directory_is_put_back(change: str) -> None:
    status = f"stat --format='%a %U %G %n' {shlex.join(directory.path for directory in DIRECTORIES)}"
    before = hosts.run(HOST, status)
    hosts.run(HOST, f"{change} {shlex.join(directory.path for directory in DIRECTORIES)}")
    assert not set(before.splitlines()) & set(hosts.run(HOST, status).splitlines())
    assert changes() == {"base | Create the directories"}
    assert hosts.run(HOST, status) == before


@pytest.mark.parametrize(
    ("change", "operation", "question", "answer"),
    [
        (
            f"usermod --shell /bin/sh {USER}",
            "base | Create the service's user",
            f"getent passwd {USER} | cut -d : -f 6,7",
            f"{STATE}:/usr/sbin/nologin",
        ),
        (
            "dpkg --remove --force-depends numactl",
            "base | Install the packages",
            "command -v numactl",
            "/usr/bin/numactl",
        ),
        (f"systemctl disable {SERVES}", SWITCH, f"systemctl is-enabled {SERVES}", "enabled"),
        (f"systemctl enable {ANOTHER}", SWITCH, f"systemctl is-enabled {ANOTHER}", "disabled"),
        (
            f"cp /etc/systemd/system/{ANOTHER} /etc/systemd/system/sglang-gone.service; systemctl daemon-reload",
            "serve | Remove the units of profiles that are gone",
            "ls /etc/systemd/system/sglang-gone.service 2>/dev/null; echo gone",
            "gone",
        ),
        (
            f"touch /etc/systemd/system/{SERVES}",
            BOOTED,
            f"systemctl show --property=NeedDaemonReload --value {SERVES}",
            "no",
        ),
    ],
)
def test_what_else_the_host_should_be(change: str, operation: str, question: str, answer: str) -> None:
    hosts.run(HOST, change)
    assert changes() == {operation}
    assert hosts.run(HOST, question, check=False).strip() == answer
    assert changes() == set()


def test_a_damaged_release_is_built_anew(host: Host) -> None:
    release = Release.of(SglangSettings.of(host).version)
    hosts.run(HOST, f"rm -r {release.directory}/lib/python3.*/site-packages/rich")
    assert changes() == {"sglang | Install the release"}
    assert hosts.run(HOST, f"{release.python} -c 'import rich; print(1)'").strip() == "1"


def test_weights_without_one_of_their_files_are_made_whole(host: Host) -> None:
    folder = directory(WeightsSettings.of(host), target(host).model)
    hosts.run(HOST, f"rm {folder}/config.json")
    assert changes() == {"weights | Bring the weights"}
    hosts.run(HOST, f"test -s {folder}/config.json")


def test_verbose_says_why_nothing_is_done() -> None:
    run = pyinfra("-y", "-v", INVENTORY, "deploy.py")
    assert run.returncode == 0, told(run)
    for reason in ("all packages are installed", f"{LIMITS.path} is as declared", "it serves as declared"):
        assert reason in run.stderr, told(run)
