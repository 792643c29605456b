"""The parts of `make bundle`, with a web server, a hub and an apt repository of the test's own."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from roles.bundle import models, packages
from roles.bundle.downloads import Download, bring
from roles.refusal import Refusal
from roles.weights import manifest
from roles.weights.model import Model
from roles.weights.settings import WeightsSettings
from tests.lab.hub.content import model_files, served
from tests.lab.hub.server import Hub, serving, sha256

ROOT = Path(__file__).parents[2]
REVISION = "a" * 40
FILES = {"large.whl": b"l" * 300_000, "small+1.whl": b"s" * 10}


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving() as hub:
        hub.repositories["org/model", REVISION] = {**FILES, **model_files()}
        yield hub


def downloads(hub: Hub) -> list[Download]:
    address = f"{hub.url}/files/org/model/{REVISION}"
    return [
        Download(f"{address}/{name.replace('+', '%2B')}", len(content), sha256(content))
        for name, content in FILES.items()
    ]


def held(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_download_that_is_cut_off_is_gone_on_with_and_nothing_comes_twice(hub: Hub, tmp_path: Path) -> None:
    hub.faults.cut_after, hub.faults.cuts = 200_000, 1
    with pytest.raises(Refusal, match=r"large\.whl: .*; run it again to go on"):
        bring(downloads(hub), tmp_path)
    bring(downloads(hub), tmp_path)
    assert held(tmp_path) == FILES
    asked = [span for _, path, span in hub.requests if path.endswith("large.whl")]
    assert asked == [None, f"bytes={200_000 // 2**16 * 2**16}-"]
    hub.requests.clear()
    bring(downloads(hub), tmp_path)
    assert hub.requests == []


def test_a_server_without_ranges_is_asked_for_all_of_it(hub: Hub, tmp_path: Path) -> None:
    hub.faults.no_ranges = True
    (tmp_path / "large.whl.part").write_bytes(b"l" * 10)
    bring(downloads(hub), tmp_path)
    assert held(tmp_path) == FILES


def test_a_file_that_is_not_the_locks_is_refused_and_not_kept(hub: Hub, tmp_path: Path) -> None:
    hub.faults.corrupt = {"large.whl"}
    with pytest.raises(Refusal, match=r"large\.whl: its sha256 is \w+, not \w+; run it again to fetch it anew"):
        bring(downloads(hub), tmp_path)
    assert "large.whl" not in held(tmp_path)


def test_what_was_damaged_is_fetched_anew_and_what_nothing_wants_goes(hub: Hub, tmp_path: Path) -> None:
    bring(downloads(hub), tmp_path)
    (tmp_path / "large.whl").write_bytes(b"L" * 300_000)
    (tmp_path / "old.whl").touch()
    with pytest.raises(Refusal, match="run it again"):
        bring(downloads(hub), tmp_path)
    bring(downloads(hub), tmp_path)
    assert held(tmp_path) == FILES


def model(**source: str) -> Model:
    tiny = yaml.safe_load((ROOT / "group_vars/models/tiny-qwen3.yml").read_text())
    written = {**tiny, "name": "m", "source": {"repository": "org/model", "revision": REVISION, **source}}
    return Model.read(written, "m.yml")


def test_a_models_manifest_has_every_file_and_the_small_ones_are_there(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories["org/model", REVISION] = model_files()
    hub.token = "hf_0123456789abcdef"
    monkeypatch.setenv("TEST_TOKEN", hub.token)
    settings = WeightsSettings.model_validate({"hub": hub.url, "token": {"env": "TEST_TOKEN"}})
    models.collect([model()], settings, tmp_path)
    told = json.loads((tmp_path / "m" / manifest.MANIFEST).read_text())
    assert told["source"] == {"repository": "org/model", "revision": REVISION}
    assert told["files"] == {
        name: {"bytes": len(content), "sha256": sha256(content)} for name, content in served(model_files()).items()
    }
    assert (tmp_path / "m/config.json").read_bytes() == model_files()["config.json"]
    assert not list(tmp_path.rglob("*.safetensors"))
    hub.requests.clear()
    models.collect([model()], settings, tmp_path)
    assert hub.bodies() == []


def test_a_hub_that_shows_nothing_is_named_with_the_models_file(hub: Hub, tmp_path: Path) -> None:
    hub.token = "hf_0123456789abcdef"
    with pytest.raises(Refusal, match=r"^group_vars/models/m\.yml: source: 401"):
        models.collect([model()], WeightsSettings.model_validate({"hub": hub.url}), tmp_path)


@pytest.fixture
def apt(tmp_path: Path) -> str:
    """apt's configuration for a repository of three packages, one of them in two versions."""
    repository = tmp_path / "repository"
    for name, version, depends in (
        ("top", "580.1", "base"),
        ("top", "590.1", "base"),
        ("base", "1:2+3", ""),
        ("x", "1", ""),
    ):
        control = tmp_path / f"{name}-{version}/DEBIAN/control"
        control.parent.mkdir(parents=True)
        always = "Architecture: amd64\nMaintainer: test\nDescription: test\n"
        needs = f"Depends: {depends}\n" if depends else ""
        control.write_text(f"Package: {name}\nVersion: {version}\n{needs}{always}")
        repository.mkdir(exist_ok=True)
        subprocess.run(["dpkg-deb", "--build", control.parent.parent, repository], check=True, capture_output=True)
    packages._write_index(repository)
    (tmp_path / "sources.list").write_text(f"deb [trusted=yes] copy:{repository} ./\n")
    return f'Dir::Etc::SourceList "{tmp_path}/sources.list";\nDir::Etc::SourceParts "/dev/null";\n'


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_packages_come_with_what_they_need_and_an_index(apt: str, tmp_path: Path) -> None:
    folder = tmp_path / "packages"
    packages.collect(["top"], folder, options=apt)
    assert names(folder) == ["Packages", "Release", "base_1%3a2+3_amd64.deb", "top_590.1_amd64.deb"]
    (folder / "base_1%3a2+3_amd64.deb").write_bytes(b"?" * (folder / "base_1%3a2+3_amd64.deb").stat().st_size)
    packages.collect(["top", "x"], folder, pins="Package: /./\nPin: version 580.*\nPin-Priority: 1000\n", options=apt)
    assert names(folder) == ["Packages", "Release", "base_1%3a2+3_amd64.deb", "top_580.1_amd64.deb", "x_1_amd64.deb"]
    shown = subprocess.run(
        ["dpkg-deb", "--field", folder / "base_1%3a2+3_amd64.deb", "Package"], capture_output=True, check=True
    )
    assert shown.stdout == b"base\n"


def test_a_package_that_nobody_has_is_named(apt: str, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="apt-get install: E: Unable to locate package nothing"):
        packages.collect(["top", "nothing"], tmp_path / "packages", options=apt)
