"""What a model's file may say about its weights, and where they lie on a host."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from roles.refusal import Refusal
from roles.weights.layout import check_room, check_source, declared_digest, directory, fetching
from roles.weights.manifest import digest
from roles.weights.model import Model
from roles.weights.settings import WeightsSettings

SHIPPED = Path(__file__).parents[2] / "group_vars/models"
SETTINGS = WeightsSettings.model_validate({"root": "/srv/models"})
REVISION = "0123456789abcdef0123456789abcdef01234567"
HUB = {"repository": "org/model", "revision": REVISION}
FILES = {"config.json": {"bytes": 10, "sha256": "a" * 64}, "a.safetensors": {"bytes": 90, "sha256": "b" * 64}}


def model(**source: Any) -> Model:
    values = yaml.safe_load((SHIPPED / "tiny-qwen3.yml").read_text())
    return Model.read({**values, "name": "m", "source": source}, "m.yml")


@pytest.mark.parametrize(
    ("source", "place"),
    [
        (HUB, "hub"),
        ({**HUB, "directory": "/data/a model"}, "directory"),
        ({"url": "https://mirror:8080/models/m/"}, "url"),
        ({"url": "http://mirror/"}, "url"),
        ({"rsync": "user@other:/srv/models/m"}, "rsync"),
        ({"rsync": "rsync://other/models/m"}, "rsync"),
        ({"generate": "tiny-qwen3"}, "generate"),
    ],
)
def test_places(source: dict[str, str], place: str) -> None:
    assert model(**source).source.place == place


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ({}, "source: one of repository, directory, url, rsync, generate is required"),
        ({"directory": "/a", "url": "http://b/"}, "source: one of directory and url, not both"),
        ({**HUB, "generate": "tiny-qwen3"}, "generate: stands alone"),
        ({**HUB, "revision": "main"}, "source.revision"),
        ({**HUB, "revision": REVISION[:12]}, "source.revision"),
        ({"repository": "no-owner"}, "source.repository"),
        ({"url": "https://name:password@mirror/m/"}, "source.url"),
        ({"url": "https://mirror/m"}, "source.url"),
        ({"url": "file:///etc/"}, "source.url"),
        ({"rsync": "--rsh=sh:/x"}, "source.rsync"),
        ({"rsync": "/a/path"}, "source.rsync"),
        ({"directory": "data"}, "source.directory"),
        ({**HUB, "files": {"../x": FILES["config.json"]}}, "'../x' is not accepted"),
        ({**HUB, "files": {"/etc/x": FILES["config.json"]}}, "'/etc/x' is not accepted"),
        ({**HUB, "files": {"x": {"bytes": 1, "sha256": "a"}}}, "source.files.x.sha256"),
        ({**HUB, "files": FILES, "bytes": 99}, "bytes: 99, but the sum of `files` is 100"),
        ({**HUB, "revison": REVISION}, "did you mean revision?"),
    ],
)
def test_refusals(source: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Refusal) as refusal:
        model(**source)
    assert str(refusal.value).startswith("m.yml: source")
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_directory_is_named_after_what_is_in_it() -> None:
    assert directory(SETTINGS, model(**HUB)) == "/srv/models/m/0123456789ab"
    assert directory(SETTINGS, model(**HUB, rsync="other:/m")) == "/srv/models/m/0123456789ab"
    assert directory(SETTINGS, model(url="http://a/", files=FILES)).startswith("/srv/models/m/files-")
    assert directory(SETTINGS, model(directory="/a")) != directory(SETTINGS, model(directory="/b"))
    assert fetching("/srv/models/m/0123456789ab") == "/srv/models/m/.fetching-0123456789ab"


def test_declared_files_have_the_digest_of_a_manifest_with_them() -> None:
    declared = declared_digest(model(**HUB, files=FILES))
    assert declared == digest(dict(reversed(FILES.items())))
    assert declared != digest({**FILES, "config.json": {"bytes": 11, "sha256": "a" * 64}})
    assert declared_digest(model(**HUB)) is None
    assert model(**HUB, files=FILES).source.total == 100


@pytest.mark.parametrize(
    ("source", "offline", "sentence"),
    [
        (
            {"repository": "org/model"},
            False,
            "group_vars/models/m.yml: source.revision: required; write the commit of org/model to serve, 40 hex",
        ),
        ({"url": "http://a/"}, False, "m.yml: source.revision: required with url, or `files`"),
        ({"rsync": "other:/m"}, False, "m.yml: source.revision: required with rsync, or `files`"),
        (
            HUB,
            True,
            "m.yml: source.directory: required with `bundle`, as a host without a network cannot reach the hub",
        ),
    ],
)
def test_what_cannot_be_had_is_refused(source: dict[str, Any], offline: bool, sentence: str) -> None:
    with pytest.raises(Refusal) as refusal:
        check_source(model(**source), offline=offline)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("source", "offline"),
    [
        (HUB, False),
        ({"repository": "org/model", "directory": "/a"}, True),
        ({"rsync": "other:/m", "files": FILES}, True),
        ({"generate": "tiny-qwen3"}, True),
    ],
)
def test_what_can_be_had_is_not(source: dict[str, Any], offline: bool) -> None:
    check_source(model(**source), offline=offline)


def test_weights_that_do_not_fit_are_refused() -> None:
    models = [model(**HUB, bytes=600 * 10**9), model(**HUB, bytes=400 * 10**9), model(directory="/a", bytes=10**12)]
    check_room(models, "/srv", begun=0, free=1000 * 10**9)
    check_room(models, "/srv", begun=200 * 10**9, free=800 * 10**9)
    with pytest.raises(Refusal, match=r"/srv: 1000\.0 GB of weights are still to come, and 999\.0 GB are free"):
        check_room(models, "/srv", begun=0, free=999 * 10**9)
