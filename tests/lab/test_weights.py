"""Weights come from a hub, through all that goes wrong, to a host that has a release (`make lab`, then a deploy).

The hub is this machine's (tests/lab/hub): the lab host shares its network.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.sglang.release import Release, locked_versions
from tests.lab import hosts
from tests.lab.conftest import ROOT, Run, ask_hosts, pyinfra, told
from tests.lab.hub.content import model_files, served
from tests.lab.hub.server import Faults, Hub, serving

PYTHON = Release.of(locked_versions()[-1]).python
MODELS = "/var/lib/slipway/test-models"
REPOSITORY, REVISION, NEXT = "org/model", "a" * 40, "b" * 40
PLACE = f"{MODELS}/from-hub/{REVISION[:12]}"
UNIT = f"slipway-weights-from-hub-{REVISION[:12]}.service"
SHARD = "model-00002-of-00002.safetensors"
TOKEN_FILE = "/etc/slipway/test-hub-token"


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    if hosts.run("lab", f"test -x {PYTHON} && echo yes; true").strip() != "yes":
        pytest.skip("the lab host has no release yet")
    with serving() as hub:
        hub.repositories[REPOSITORY, REVISION] = model_files()
        hub.repositories[REPOSITORY, NEXT] = model_files(seed=1)
        yield hub
    hosts.run("lab", f"rm -rf {MODELS} {TOKEN_FILE}")


@pytest.fixture(autouse=True)
def bare(hub: Hub) -> None:
    """No weights, no job, no token, no faults."""
    hosts.run("lab", f"systemctl stop '{UNIT}' 2>/dev/null; rm -rf {MODELS} {TOKEN_FILE}")
    hub.faults, hub.token = Faults(), None
    hub.requests.clear()


@pytest.fixture
def site(tmp_path: Path, hub: Hub) -> Path:
    """An inventory with a model of the hub, and a profile that serves it."""
    model = (ROOT / "group_vars/models/tiny-qwen3.yml").read_text()
    profile = "description: Serves the model of the test's hub.\nextends: tiny-tp1\nmodel: from-hub\n"
    files = {
        "inventory/hosts.yml": (ROOT / "inventory/lab.yml").read_text(),
        "group_vars/models/from-hub.yml": model,
        "group_vars/profiles/from-hub.yml": profile,
        "group_vars/lab.yml": (ROOT / "group_vars/lab.yml")
        .read_text()
        .replace("profile: tiny-tp1", "profile: from-hub")
        + f"weights_root: {MODELS}\nweights_hub: {hub.url}\nweights_token_file: {TOKEN_FILE}\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    wanted(tmp_path, f"{{repository: {REPOSITORY}, revision: {REVISION}}}")
    return tmp_path


def wanted(site: Path, source: str) -> None:
    """Write another source into the model's file."""
    file = site / "group_vars/models/from-hub.yml"
    text = re.sub(r"(?m)^source:.*(\n  .*)*", f"source: {source}", file.read_text())
    file.write_text(text)


def bring(site: Path, *options: str) -> Run:
    return pyinfra("-y", str(site / "inventory"), "tests/lab/weights_play.py", *options)


def refused(site: Path) -> str:
    run = bring(site)
    assert run.returncode != 0, told(run)
    assert listed(PLACE) == []
    return run.stdout + run.stderr


def listed(folder: str) -> list[str]:
    return hosts.run("lab", f"ls -A {folder} 2>/dev/null; true").split("\n")[:-1]


def assert_whole(site: Path, revision: str = REVISION, seed: int = 0) -> None:
    """The host itself says that the weights are right, and they are those that the hub has."""
    asked = ask_hosts("--inventory", str(site / "inventory"), "--hashes", "-k", "weights")
    assert asked.returncode == 0, told(asked)
    text = hosts.run("lab", f"cat {MODELS}/from-hub/{revision[:12]}/slipway-manifest.json")
    files = {name: file["bytes"] for name, file in json.loads(text)["files"].items()}
    assert files == {name: len(content) for name, content in served(model_files(seed)).items()}


def test_weights_come_once(site: Path, hub: Hub) -> None:
    run = bring(site)
    assert run.returncode == 0, told(run)
    assert_whole(site)
    hub.requests.clear()
    again = bring(site)
    assert again.returncode == 0, told(again)
    assert "No changes" in again.stdout + again.stderr
    assert hub.requests == []


def test_cut_connections_do_not_matter(site: Path, hub: Hub) -> None:
    hub.faults.cut_after, hub.faults.cuts = 5000, 4
    run = bring(site)
    assert run.returncode == 0, told(run)
    assert hub.faults.cuts == 0
    assert_whole(site)


@pytest.mark.parametrize(("name", "sentence"), [(SHARD, "its sha256 is"), ("config.json", "is not the file of this")])
def test_a_wrong_file_is_named_and_alone_fetched_again(site: Path, hub: Hub, name: str, sentence: str) -> None:
    hub.faults.corrupt = {name}
    assert f"{name}: {sentence}" in refused(site)
    hub.faults.corrupt = set()
    hub.requests.clear()
    run = bring(site)
    assert run.returncode == 0, told(run)
    assert_whole(site)
    assert name in hub.bodies()
    assert "model-00001-of-00002.safetensors" not in hub.bodies()


def test_a_killed_job_is_gone_on_with(site: Path, hub: Hub) -> None:
    hub.faults.held = {SHARD}
    with started(site) as run:
        assert hub.faults.reached.wait(120)
        hosts.run("lab", f"systemctl kill --signal=KILL {UNIT}")
        assert run.wait(120) != 0
    assert listed(PLACE) == []
    hub.faults.release.set()
    assert bring(site).returncode == 0
    assert_whole(site)
    assert listed(f"{MODELS}/from-hub") == [REVISION[:12]]


def test_the_job_outlives_the_run_and_a_further_run_waits_for_it(site: Path, hub: Hub) -> None:
    hub.faults.held = {SHARD}
    with started(site) as run:
        assert hub.faults.reached.wait(120)
        run.kill()
    assert hosts.run("lab", f"systemctl show --property=SubState --value {UNIT}").strip() == "running"
    with started(site) as further:
        hub.faults.release.set()
        assert further.wait(120) == 0
    assert_whole(site)
    assert hub.bodies().count(SHARD) == 1


def test_two_revisions_live_side_by_side_until_the_old_one_is_not_wanted(site: Path) -> None:
    assert bring(site).returncode == 0
    wanted(site, f"{{repository: {REPOSITORY}, revision: {NEXT}}}")
    run = bring(site)
    assert run.returncode == 0, told(run)
    assert f"{PLACE}: 41." in run.stdout + run.stderr
    assert sorted(listed(f"{MODELS}/from-hub")) == [REVISION[:12], NEXT[:12]]
    assert_whole(site, NEXT, seed=1)
    run = bring(site, "--data", "weights_remove_old=true")
    assert run.returncode == 0, told(run)
    assert listed(f"{MODELS}/from-hub") == [NEXT[:12]]


def test_another_host_gives_its_weights_by_rsync(site: Path) -> None:
    assert bring(site).returncode == 0
    hosts.run("lab", f"mv {PLACE} {MODELS}/source && chmod -R go= {MODELS}/source")
    settings = f"[models]\\npath = {MODELS}/source\\nuse chroot = no\\nuid = root\\ngid = root\\n"
    daemon = "rsync --daemon --no-detach --address=127.0.0.1 --port=8873 --config=/run/test-rsyncd.conf"
    hosts.run("lab", "command -v rsync || apt-get install --yes rsync")
    hosts.run("lab", f"printf '{settings}' > /run/test-rsyncd.conf")
    hosts.run("lab", f"systemd-run --quiet --unit=test-rsyncd {daemon}")
    try:
        wanted(site, f"{{revision: {REVISION}, rsync: 'rsync://127.0.0.1:8873/models/.'}}")
        run = bring(site)
        assert run.returncode == 0, told(run)
        assert_whole(site)
    finally:
        hosts.run("lab", "systemctl stop test-rsyncd; rm -f /run/test-rsyncd.conf")


def started(site: Path, *options: str) -> subprocess.Popen[str]:
    """A run that is at work."""
    command = [str(Path(sys.executable).with_name("pyinfra")), "-y", str(site / "inventory"), *options]
    return subprocess.Popen(
        [*command, "tests/lab/weights_play.py"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
