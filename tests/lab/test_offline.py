"""A host in a network namespace without a route, and without uv's cache: a bundle is all that it has."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from roles.benchmark.record import Record
from roles.weights.manifest import MANIFEST
from tests.lab import hosts
from tests.lab.conftest import ROOT, Deploying, ask_hosts, deploy, told
from tests.lab.places import Place

pytestmark = pytest.mark.long

NAME = "offline"


@pytest.fixture(scope="module")
def host() -> Iterator[Place]:
    """Bare, and alone."""
    hosts.reset(NAME)
    yield Place(NAME)
    hosts.down(NAME)


@pytest.fixture(scope="module")
def inventory(host: Place, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The lab's inventory, for that host."""
    lab = yaml.safe_load((ROOT / "inventory/lab.yml").read_text())
    lab["all"]["children"]["lab"]["hosts"] = {NAME: {"ansible_host": host.address, "ansible_port": host.port}}
    folder = tmp_path_factory.mktemp("site") / "inventory"
    folder.mkdir()
    (folder / "hosts.yml").write_text(yaml.safe_dump(lab))
    return str(folder)


@pytest.fixture(scope="module")
def bundle(inventory: str, pytestconfig: pytest.Config) -> Path:
    """Made by the command that users type; what was downloaded is kept for the next time."""
    assert pytestconfig.cache
    made = pytestconfig.cache.mkdir("bundle") / "made"
    subprocess.run(["make", "bundle", f"BUNDLE={made}", f"INVENTORY={inventory}"], cwd=ROOT, check=True)
    return made


@pytest.fixture
def copy(bundle: Path) -> Iterator[Path]:
    """The same bundle, of which a test may replace files."""
    copy = bundle.with_name("copy")
    subprocess.run(["cp", "--archive", "--link", bundle, copy], check=True)
    yield copy
    subprocess.run(["rm", "-rf", copy], check=True)


def test_the_host_reaches_nothing_and_has_nothing(host: Place) -> None:
    assert hosts.run(NAME, "ip route show default; ip -6 route show default") == ""
    assert hosts.run(NAME, "ls -A /var/cache/uv /opt/slipway 2>/dev/null; true") == ""


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("packages/g++_*", None, "not there"),
        ("wheels/triton-*", "cut off", r"has 1000 bytes, not \d+"),
        ("wheels/sglang-*", "changed", r"its sha256 is [0-9a-f]{64}, not [0-9a-f]{64}"),
        (MANIFEST, None, "not there, or no manifest"),
    ],
)
def test_what_is_wrong_in_a_bundle_is_named_and_the_host_is_left_alone(
    copy: Path, inventory: str, name: str, content: str | None, sentence: str
) -> None:
    (path,) = copy.glob(name)
    right = path.read_bytes()
    path.unlink()
    if content:
        path.write_bytes(right[:1000] if content == "cut off" else bytes([right[0] ^ 1]) + right[1:])
    run = deploy("--data", f"bundle={copy}", inventory=inventory)
    assert run.returncode == 1, told(run)
    assert re.search(f"bundle: {re.escape(str(path))}: {sentence}", run.stdout + run.stderr), told(run)
    assert hosts.run(NAME, "ls -d /opt/slipway /etc/slipway /var/lib/slipway 2>/dev/null; true") == ""


def test_a_run_that_is_killed_while_it_copies_has_copied_for_the_next(bundle: Path, inventory: str) -> None:
    run = Deploying("--data", f"bundle={bundle}", inventory=inventory)
    run.until("left to copy, now nvidia_cudnn_cu13")
    run.kill()
    further = deploy("--data", f"bundle={bundle}", inventory=inventory)
    assert further.returncode == 0, told(further)
    copying = re.findall(r"of wheels left to copy, now (\S+)", further.stdout + further.stderr)
    assert copying[0].startswith("nvidia_cudnn_cu13")


def test_the_bare_host_has_become_a_server_that_has_proven_itself() -> None:
    assert hosts.run(NAME, "systemctl is-active sglang-tiny-tp1") == "active\n"
    assert Record.read_json(hosts.run(NAME, "cat /var/lib/slipway/records/*.json"), "the record").accepted


def test_the_host_itself_says_that_all_of_it_is_true(bundle: Path, inventory: str) -> None:
    run = ask_hosts("--inventory", inventory)
    assert run.returncode == 0, told(run)


def test_a_second_run_changes_nothing(bundle: Path, inventory: str) -> None:
    run = deploy("--data", f"bundle={bundle}", inventory=inventory)
    assert run.returncode == 0, told(run)
    assert "] Success" not in run.stdout + run.stderr
