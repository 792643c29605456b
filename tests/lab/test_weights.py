"""Weights come from a hub, through all that goes wrong, to a host that has a release (`make lab`, then a deploy).

The hub is this machine's (tests/lab/hub): the lab host shares its network.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from roles import credentials
from roles.sglang.release import Release, locked_versions
from roles.weights.sources import TOKEN as HUB_TOKEN
from tests.lab import hosts
from tests.lab.conftest import ROOT, Run, ask_hosts, pyinfra, told
from tests.lab.hub.content import model_files, served
from tests.lab.hub.server import Faults, Hub, serving
from tests.lab.planted import KEPT, PLANTED, files_on_the_controller, files_on_the_host, shown_by

PYTHON = Release.of(locked_versions()[-1]).python
MODELS = "/var/lib/slipway/test-models"
REPOSITORY, REVISION, NEXT = "org/model", "a" * 40, "b" * 40
PLACE = f"{MODELS}/from-hub/{REVISION[:12]}"
UNIT = f"slipway-weights-from-hub-{REVISION[:12]}.service"
SHARD = "model-00002-of-00002.safetensors"
TOKEN = f"hf_{PLANTED}"


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    if hosts.run("lab", f"test -x {PYTHON} && echo yes; true").strip() != "yes":
        pytest.skip("the lab host has no release yet")
    with serving() as hub:
        hub.repositories[REPOSITORY, REVISION] = model_files()
        hub.repositories[REPOSITORY, NEXT] = model_files(seed=1)
        yield hub
    hosts.run("lab", f"rm -rf {MODELS} {credentials.path(HUB_TOKEN)}")


@pytest.fixture(autouse=True)
def bare(hub: Hub) -> None:
    """No weights, no job, no token, no faults."""
    hosts.run("lab", f"systemctl stop '{UNIT}' 2>/dev/null; rm -rf {MODELS} {credentials.path(HUB_TOKEN)}")
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
        + f"weights_root: {MODELS}\nweights_hub: {hub.url}\n",
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


@pytest.mark.long
def test_names_that_a_shell_would_read_are_names(site: Path, hub: Hub) -> None:
    name = """code/-x $(touch INJECTED) `touch INJECTED`; "it's" \\ %h *.txt"""
    root = f"{MODELS}/a 'b' $(touch INJECTED); -x"
    hub.repositories[REPOSITORY, REVISION] = {**model_files(), name: b"text"}
    settings = site / "group_vars/lab.yml"
    settings.write_text(
        settings.read_text().replace(f"weights_root: {MODELS}\n", f"weights_root: {json.dumps(root)}\n")
    )
    try:
        run = bring(site)
        assert run.returncode == 0, told(run)
    finally:
        hub.repositories[REPOSITORY, REVISION] = model_files()
    found = hosts.run("lab", f"find {MODELS} -name '*INJECTED*.txt'; find / -xdev -name INJECTED")
    assert found == f"{root}/from-hub/{REVISION[:12]}/{name}\n"
    assert ask_hosts("--inventory", str(site / "inventory"), "--hashes", "-k", "weights").returncode == 0


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
    with Started(site) as run:
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
    with Started(site) as run:
        assert hub.faults.reached.wait(120)
        run.kill()
    assert hosts.run("lab", f"systemctl show --property=SubState --value {UNIT}").strip() == "running"
    with Started(site) as further:
        hub.faults.release.set()
        assert further.wait(120) == 0
    assert_whole(site)
    assert hub.bodies().count(SHARD) == 1


@pytest.mark.long
def test_a_disk_without_room_is_refused_before_the_first_byte(site: Path, hub: Hub) -> None:
    with full_disk("100k"):
        assert re.search(r"40\.4 kB are still to come, and [\d.]+ (kB|bytes) are free on the disk of", refused(site))
        assert hub.bodies() == []


@pytest.mark.long
def test_a_disk_that_fills_up_is_named_and_room_lets_a_further_run_go_on(site: Path, hub: Hub) -> None:
    hub.faults.held = {SHARD}
    with full_disk("400k"), Started(site) as run:
        assert hub.faults.reached.wait(120)
        hosts.run("lab", f"dd if=/dev/zero of={MODELS}/filler bs=4k 2>/dev/null; true")
        hub.faults.release.set()
        assert run.wait(120) != 0
        assert "is full; a further run goes on when there is room" in run.said()
        assert listed(PLACE) == []
        hosts.run("lab", f"rm {MODELS}/filler")
        hub.requests.clear()
        again = bring(site)
        assert again.returncode == 0, told(again)
        assert "model-00001-of-00002.safetensors" not in hub.bodies()
        assert_whole(site)


@contextmanager
def full_disk(size: str) -> Iterator[None]:
    """The models on a disk of that size, of which the programs that fetch them take about 60 kB."""
    hosts.run("lab", f"mkdir -p {MODELS} && mount -t tmpfs -o size={size},mode=755 tmpfs {MODELS}")
    try:
        yield
    finally:
        hosts.run("lab", f"umount --lazy {MODELS}")


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


def test_a_token_opens_a_gated_repository_and_is_seen_nowhere(
    site: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.token = TOKEN
    assert "a private or gated one needs `weights_token`" in refused(site)
    monkeypatch.setenv("TEST_HUB_TOKEN", TOKEN)
    hub.faults.held = {SHARD}
    with Started(site, "-vvv", "--debug", "--data", 'weights_token={"env": "TEST_HUB_TOKEN"}') as run:
        assert hub.faults.reached.wait(120)
        commands = (f"systemctl show {UNIT}", f"systemctl cat {UNIT}", "cat /proc/[0-9]*/cmdline")
        assert shown_by(*commands, "cat /proc/[0-9]*/environ") == []
        hub.faults.release.set()
        assert run.wait(120) == 0
    assert "weights | Write the token for the hub" in run.said()
    assert PLANTED not in run.said()
    assert shown_by("journalctl --output=export", f"cat {PLACE}/slipway-manifest.json") == []
    found = files_on_the_host()
    assert credentials.path(HUB_TOKEN) in found
    assert all(name.startswith(KEPT) for name in found), found
    assert files_on_the_controller(site) == []


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


class Started(subprocess.Popen[str]):
    """A run that is at work. It prints into a file: a pipe that nobody reads would stop it."""

    def __init__(self, site: Path, *options: str) -> None:
        pyinfra = str(Path(sys.executable).with_name("pyinfra"))
        command = [pyinfra, "-y", str(site / "inventory"), *options, "tests/lab/weights_play.py"]
        self._said = site / "said.txt"
        with self._said.open("w") as said:
            super().__init__(command, cwd=ROOT, stdout=said, stderr=subprocess.STDOUT, text=True)

    def said(self) -> str:
        """All that it has printed."""
        return self._said.read_text()
