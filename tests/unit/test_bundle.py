"""A bundle is what its manifest says, and for such hosts alone."""

from pathlib import Path
from typing import Any

import pytest

from roles.bundle.bundle import bundle_at
from roles.bundle.pythons import fits, tags
from roles.refusal import Refusal
from roles.weights.layout import pinned
from roles.weights.manifest import MANIFEST, sha256
from roles.weights.model import Model
from tests.unit.bundles import FILES, LOCK, OLD, write


def refused(folder: Path, **expected: Any) -> str:
    with pytest.raises(Refusal) as refusal:
        bundle_at(str(folder)).check(**expected)
    return str(refusal.value)


def test_a_whole_bundle_for_such_a_host(tmp_path: Path) -> None:
    bundle = bundle_at(str(write(tmp_path)))
    bundle.check(distribution="debian 12", python="3.11", lock=LOCK)
    assert [name[:1] for name in bundle.wheels("3.11")] == ["b", "c"]
    assert [name[:1] for name in bundle.wheels("3.12")] == ["b"]
    assert bundle.wheels(None) == bundle.part("wheels")
    assert bundle.bytes("wheels") == 3


def test_a_bundle_has_a_file_of_each_lock(tmp_path: Path) -> None:
    folder = write(tmp_path, {**FILES, "flash_attn/a-1.whl": "4"})
    locks = [
        f"{name}==1 --hash=sha256:{'0' * 64} --hash=sha256:{sha256(folder / path)}"
        for name, path in (("a", "flash_attn/a-1.whl"), ("b", OLD))
    ]
    bundle_at(str(folder)).check(flash_attn=locks[:1])
    assert "flash_attn does not have b==1; make the bundle again" in refused(folder, flash_attn=locks)


@pytest.mark.parametrize(
    ("expected", "sentence"),
    [
        ({"distribution": "ubuntu 24.04"}, "are for debian 12, and the host is ubuntu 24.04; make a bundle on"),
        ({"python": "3.12"}, "are for Python 3.11, and the host has 3.12; make the bundle with PYTHONS=3.12"),
        ({"lock": "b" * 64}, "are not those of the lock; make the bundle again"),
    ],
)
def test_other_hosts_are_refused(tmp_path: Path, expected: dict[str, str], sentence: str) -> None:
    assert sentence in refused(write(tmp_path), **expected)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(None, "not there"), ("", "has 0 bytes, not 1"), ("2", "its sha256 is d4735e3a")],
)
def test_each_wrong_file_is_named(tmp_path: Path, content: str | None, sentence: str) -> None:
    write(tmp_path)
    for name in (OLD, "packages/Packages"):
        (tmp_path / name).unlink()
        if content is not None:
            (tmp_path / name).write_text(content * len(FILES[name]))
    lines = refused(tmp_path).splitlines()
    assert [line.split(": ")[1] for line in lines] == [str(tmp_path / "packages/Packages"), str(tmp_path / OLD)]
    assert lines[1].startswith(f"bundle: {tmp_path / OLD}: {sentence}")


def test_a_folder_that_is_no_bundle(tmp_path: Path) -> None:
    assert "is no directory on this machine; `make bundle` makes one" in refused(tmp_path / "nothing")
    for text in (None, "{}", "5", '{"files": {}}', "{"):
        bundle_at.cache_clear()
        if text is not None:
            (tmp_path / MANIFEST).write_text(text)
        assert "not there, or no manifest; run `make bundle` to its end" in refused(tmp_path)


def test_wheels_are_chosen_as_a_host_would() -> None:
    assert fits("a-1-cp311-cp311-manylinux2014_x86_64.whl", "3.11")
    assert fits("a-1-cp310-abi3-manylinux_2_34_x86_64.whl", "3.12")
    assert fits("a-1-py3-none-manylinux1_x86_64.whl", "3.12")
    for other in ("cp313-cp313-manylinux_2_28_x86_64", "cp311-cp311-manylinux_2_38_x86_64", "py3-none-win_amd64"):
        assert not fits(f"a-1-{other}.whl", "3.11")
    assert not fits("a-1.tar.gz", "3.11")
    order = [str(tag) for tag in tags("3.11")]
    assert order.index("cp311-cp311-manylinux_2_36_x86_64") < order.index("cp311-cp311-manylinux_2_17_x86_64")


def test_a_model_gets_the_files_of_its_revision_and_no_others() -> None:
    source = {"repository": "org/m", "revision": "a" * 40, "directory": "/data/m"}
    files = {"config.json": {"bytes": 10, "sha256": "c" * 64}}
    manifest = {"source": {"repository": "org/m", "revision": "a" * 40}, "files": files}
    model = model_of(source)
    assert pinned(model, manifest).source.model_dump()["files"] == files
    assert pinned(model, None) == model
    assert pinned(model_of({**source, "revision": "b" * 40}), manifest).source.files == {}
    own = model_of({**source, "files": {"config.json": {"bytes": 11, "sha256": "d" * 64}}})
    assert pinned(own, manifest) == own


def model_of(source: dict[str, Any]) -> Model:
    architecture = {"model_type": "qwen3", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 1}
    more: dict[str, Any] = {
        "head_dim": 8,
        "vocab_size": 9,
        "intermediate_size": 8,
        "max_position_embeddings": 9,
        "num_key_value_heads": 1,
    }
    written = {
        "name": "m",
        "description": "",
        "source": source,
        "architecture": {**architecture, **more},
    }
    return Model.read(written, "m.yml")
