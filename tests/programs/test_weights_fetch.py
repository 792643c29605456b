"""Weights come to a host whole, verified and in one step, from every place but the hub (tests/lab has that)."""

import errno
import getpass
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roles.weights import fetch, manifest, progress, sources
from roles.weights.completeness import incomplete
from roles.weights.operations import PROGRAMS
from tests.lab.hub.content import model_files, safetensors, served
from tests.lab.hub.server import Hub, serving, sha256

REPOSITORY, REVISION, OTHER = "org/model", "a" * 40, "b" * 40
SHARD = "model-00002-of-00002.safetensors"
ROOT = Path(__file__).parents[2]


def described(files: dict[str, bytes], revision: str = REVISION) -> bytes:
    """A manifest of these files."""
    entries = {n: {"bytes": len(c), "sha256": sha256(c)} for n, c in files.items()}
    return json.dumps({"model": "m", "source": {"revision": revision}, "files": entries}).encode()


class Host:
    """A host in a folder: `fetch` is one run of the job."""

    def __init__(self, root: Path, hub: Hub) -> None:
        self.root, self.hub = root, hub
        self.model = root / "models/m/here"
        self.aside = root / "models/m/.fetching-here"

    def publish(self, files: dict[str, bytes]) -> None:
        self.hub.repositories[REPOSITORY, REVISION] = {**files, manifest.MANIFEST: described(files)}

    def instruct(self, **source: Any) -> None:
        nothing: dict[str, Any] = {"repository": None, "revision": None, "bytes": None, "files": {}}
        wish = {
            "model": "m",
            "file": "group_vars/models/m.yml",
            "place": next(name for name in source if name in ("url", "directory", "rsync")),
            "source": {**nothing, **source},
            "folder": str(self.model),
            "user": getpass.getuser(),
        }
        self.aside.mkdir(parents=True, exist_ok=True)
        (self.aside / "instructions.json").write_text(json.dumps(wish))

    def fetch(self, **source: Any) -> None:
        self.instruct(**(source or self.mirror))
        fetch.main(self.aside)

    def refused(self, **source: Any) -> str:
        """What a run says that does not succeed."""
        with pytest.raises(SystemExit) as end:
            self.fetch(**source)
        assert not self.model.exists()
        return str(end.value.code)

    @property
    def mirror(self) -> dict[str, Any]:
        return {"url": f"{self.hub.url}/files/{REPOSITORY}/{REVISION}/"}

    def served(self) -> dict[str, bytes]:
        """What a server would find."""
        assert manifest.problems(self.model, hashes=True) == []
        return {name: path.read_bytes() for name, path in sources.regular_files(self.model).items()}


@pytest.fixture(scope="module")
def web() -> Iterator[Hub]:
    with serving() as hub:
        yield hub


@pytest.fixture
def host(tmp_path: Path, web: Hub, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(fetch, "PAUSES", (0, 0))
    monkeypatch.setattr(os, "sync", lambda: None)  # the disks of this machine have other things to do
    web.requests.clear()
    web.faults = type(web.faults)()
    host = Host(tmp_path, web)
    host.publish(served(model_files()))
    return host


def written(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def as_they_are(folder: Path) -> dict[Path, tuple[int, int, int]]:
    """Whatever of the files a careless program could change."""
    found = {path: path.lstat() for path in folder.rglob("*")}
    return {path: (seen.st_mode, seen.st_mtime_ns, seen.st_uid) for path, seen in found.items()}


def test_a_mirror_gives_a_whole_model_and_nothing_is_left_aside(host: Host) -> None:
    host.fetch()
    assert host.served() == served(model_files())
    assert [path.name for path in host.model.parent.iterdir()] == ["here"]


def test_the_manifest_says_where_it_came_from_and_can_be_declared(host: Host) -> None:
    host.fetch(**host.mirror, repository=REPOSITORY, revision=REVISION)
    text = json.loads((host.model / manifest.MANIFEST).read_text())
    assert text["source"] == {"repository": REPOSITORY, "revision": REVISION, **host.mirror}
    host.model.rename(host.root / "elsewhere")
    host.fetch(**host.mirror, files=text["files"])
    assert manifest.read(host.model) == manifest.read(host.root / "elsewhere")


def test_cut_connections_are_taken_up_where_they_were_cut(host: Host) -> None:
    host.hub.faults.cut_after, host.hub.faults.cuts = 6000, 5
    host.fetch()
    assert host.served() == served(model_files())
    assert "bytes=6000-" in [found for _, _, found in host.hub.requests]


def test_a_server_that_gives_no_ranges_gives_the_file_anew(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    part = host.aside / "part" / SHARD
    written(part.parent, {SHARD: b"another beginning"})
    host.hub.faults.no_ranges = True
    host.fetch()
    assert host.served() == served(model_files())


def test_what_comes_in_one_go_is_hashed_on_its_way(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    read_again: list[Path] = []
    with monkeypatch.context() as patch:
        patch.setattr(manifest, "sha256", lambda path, _: read_again.append(path))
        host.fetch()
    assert read_again == []
    assert host.served() == served(model_files())


def test_a_file_whose_beginning_lay_here_is_hashed_from_there(host: Host) -> None:
    written(host.aside / "part", {SHARD: b"another beginning"})
    assert f"{SHARD}: its sha256 is" in host.refused()
    host.fetch()
    assert host.served() == served(model_files())


def test_a_server_that_stays_away_ends_the_run_and_a_further_run_goes_on(host: Host) -> None:
    host.hub.faults.unavailable = {SHARD}
    assert f"{SHARD}: the server answers 503" in host.refused()
    assert host.hub.bodies().count(SHARD) == 1 + len(fetch.PAUSES)
    host.hub.faults.unavailable = set()
    host.fetch()
    assert host.served() == served(model_files())


def test_a_wrong_file_is_never_served_and_alone_fetched_again(host: Host) -> None:
    host.hub.faults.corrupt = {SHARD}
    assert f"{SHARD}: its sha256 is" in host.refused()
    host.hub.faults.corrupt = set()
    host.hub.requests.clear()
    host.fetch()
    assert host.served() == served(model_files())
    assert SHARD in host.hub.bodies()
    assert "config.json" not in host.hub.bodies()


def test_a_killed_run_is_gone_on_with(host: Host) -> None:
    """The job runs from what is sent to a host, and from that alone."""
    host.hub.faults.held = {SHARD}
    host.instruct(**host.mirror)
    code = {f"{name}.py": (ROOT / f"roles/weights/{name}.py").read_bytes() for name in PROGRAMS}
    written(host.aside / "roles/weights", code)
    command = [sys.executable, "-P", "-m", "roles.weights.fetch", str(host.aside)]
    environment = {**os.environ, "PYTHONPATH": str(host.aside)}
    with subprocess.Popen(command, env=environment, cwd="/", stdout=subprocess.DEVNULL) as job:
        assert host.hub.faults.reached.wait(60)
        job.kill()
    host.hub.faults.release.set()
    assert not host.model.exists()
    host.fetch()
    assert host.served() == served(model_files())


def test_what_stands_in_the_place_is_kept_if_it_is_right(host: Host) -> None:
    host.fetch()
    (host.model / "config.json").write_bytes(b"{}")
    (host.model / manifest.MANIFEST).unlink()
    (host.model / "left-over.bin").write_bytes(b"x")
    host.hub.requests.clear()
    host.fetch()
    assert host.served() == served(model_files())
    assert host.hub.bodies() == [manifest.MANIFEST, "config.json"]


def test_what_stands_in_the_place_stays_until_there_is_better(host: Host) -> None:
    written(host.model, {"config.json": b"old"})
    host.hub.faults.corrupt = {SHARD}
    with pytest.raises(SystemExit):
        host.fetch()
    assert (host.model / "config.json").read_bytes() == b"old"


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ({"bytes": 5}, r"the source has 40379 bytes; `bytes` in group_vars/models/m.yml is 5"),
        ({"revision": OTHER}, f"is of revision {REVISION}, not {OTHER}"),
        ({"files": {"x": {"bytes": 1, "sha256": "c" * 64}}}, "compared with group_vars/models/m.yml: x is not there"),
        ({"files": {"config.json": {"bytes": 1, "sha256": "c" * 64}}}, "config.json has 34 bytes, not 1"),
        ({"files": {"config.json": {"bytes": 34, "sha256": "c" * 64}}}, "config.json has the sha256"),
    ],
)
def test_a_source_of_other_weights_is_refused_before_a_download(
    host: Host, source: dict[str, Any], sentence: str
) -> None:
    assert sentence in host.refused(**host.mirror, **source)
    assert host.hub.bodies() == [manifest.MANIFEST]


def test_a_manifest_cannot_name_files_elsewhere(host: Host) -> None:
    host.publish({**served(model_files()), "../../escaped": b"x"})
    assert "'../../escaped' is no file below the model's folder" in host.refused()


def test_a_disk_without_room_is_refused_before_a_download(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: type("Usage", (), {"free": 40_000}))
    assert f"40.4 kB are still to come, and 40.0 kB are free on the disk of {host.aside}" in host.refused()
    assert host.hub.bodies() == [manifest.MANIFEST]


def test_a_disk_that_fills_up_is_named(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(sources, "copied", full)
        assert "is full; a further run goes on when there is room" in host.refused()
    host.fetch()
    assert host.served() == served(model_files())


def test_a_directory_is_linked_and_stays_as_it_is(host: Host) -> None:
    source = written(host.root / "a folder", model_files())
    before = as_they_are(source)
    host.fetch(directory=str(source))
    assert (host.model / SHARD).resolve() == source / SHARD
    assert host.served() == served(model_files())
    assert as_they_are(source) == before


def test_a_directory_of_links_is_followed_as_the_hubs_cache_is_one(host: Host) -> None:
    blobs = written(host.root / "blobs", served(model_files()))
    snapshot = host.root / "snapshot"
    for name in served(model_files()):
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / name).symlink_to(blobs / name)
    host.fetch(directory=str(snapshot))
    assert (host.model / SHARD).readlink() == blobs / SHARD


def test_a_directory_is_compared_with_its_manifest(host: Host) -> None:
    files = served(model_files())
    source = written(host.root / "source", {**files, manifest.MANIFEST: described(files)})
    (source / SHARD).write_bytes(safetensors("layer.2.weight", 20_000, seed=1))
    assert f"{SHARD}: its sha256 is" in host.refused(directory=str(source))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_what_the_server_may_not_read_is_copied(host: Host) -> None:
    source = written(host.root / "source", served(model_files()))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        host.model = Path(folder) / "m/here"
        host.aside = Path(folder) / "m/.fetching-here"
        open_file = Path(folder) / "open"
        open_file.write_bytes((source / SHARD).read_bytes())
        (source / SHARD).unlink()
        (source / SHARD).symlink_to(open_file)
        host.instruct(directory=str(source))
        wish = json.loads((host.aside / "instructions.json").read_text())
        (host.aside / "instructions.json").write_text(json.dumps({**wish, "user": "nobody"}))
        fetch.main(host.aside)
        assert sources.unreadable(host.model.rglob("*"), "nobody") == []
        assert [path.name for path in host.model.rglob("*") if path.is_symlink()] == [SHARD]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_place_that_the_server_cannot_reach_is_refused(host: Host) -> None:
    host.instruct(**host.mirror)
    wish = json.loads((host.aside / "instructions.json").read_text())
    (host.aside / "instructions.json").write_text(json.dumps({**wish, "user": "nobody"}))
    host.root.chmod(0o700)
    with pytest.raises(SystemExit, match="the user nobody may not read it; a folder above is closed to others"):
        fetch.main(host.aside)
    assert not host.model.exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"config.json": None}, "config.json: not there"),
        ({SHARD: None}, f"{SHARD}: named in model.safetensors.index.json, but not there"),
        ({SHARD: safetensors("x", 20_000)[:-1]}, f"{SHARD}: truncated: it has 20075 of 20076 bytes"),
        ({SHARD: b""}, f"{SHARD}: truncated, or no safetensors file"),
        ({SHARD: b"version https://git-lfs.github.com/spec/v1\n"}, f"{SHARD}: truncated, or no safetensors file"),
        ({"model.safetensors.index.json": b"{"}, "model.safetensors.index.json: no index of safetensors files"),
    ],
)
def test_a_directory_that_is_no_whole_model_is_refused(
    host: Host, change: dict[str, bytes | None], sentence: str
) -> None:
    files = {**served(model_files()), **change}
    source = written(host.root / "source", {name: content for name, content in files.items() if content is not None})
    assert sentence in host.refused(directory=str(source))


def test_a_directory_without_weights_is_refused(host: Host) -> None:
    source = written(host.root / "source", {"config.json": b"{}", "pytorch_model.bin": b"x"})
    assert "no *.safetensors file is there" in host.refused(directory=str(source))
    assert "nowhere: no such directory" in host.refused(directory="/nowhere")
    assert incomplete(written(host.root / "whole", model_files())) == []


def test_progress_is_told_in_bytes_rate_and_time_left() -> None:
    begin, now = progress.Moment(0, 0, 0), progress.Moment(10, 8 * 10**9, 5 * 10**9)
    assert (
        progress.line(begin, now, 500 * 10**9)
        == "8.0 GB of 500.0 GB fetched, 5.0 GB verified, 800.0 MB/s, 10 min left"
    )
    fetched = progress.Moment(20, 500 * 10**9, 490 * 10**9)
    verifying = progress.Moment(30, 500 * 10**9, 495 * 10**9)
    assert progress.line(fetched, verifying, 500 * 10**9).endswith("495.0 GB verified, 500.0 MB/s, under 1 min left")
    assert progress.line(begin, progress.Moment(10, 10**7, 0), 500 * 10**9).endswith("1.0 MB/s, 138 h 53 min left")
    assert progress.line(now, progress.Moment(20, 8 * 10**9, 5 * 10**9), 500 * 10**9).endswith("unknown time left")
