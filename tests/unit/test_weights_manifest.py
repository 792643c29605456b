"""What a host says of its weights."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from roles.weights import manifest

PROGRAM = Path(manifest.__file__).read_text()


def weights(folder: Path, **files: bytes) -> Path:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    described = {name: {"bytes": len(c), "sha256": manifest.sha256(folder / name)} for name, c in files.items()}
    (folder / manifest.MANIFEST).write_text(json.dumps({"files": described}))
    return folder


def asked(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The program as it is run on a host."""
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def look(root: Path, *references: Path) -> Any:
    return manifest.look(root, map(str, references))["folders"]


def test_a_folder_is_what_its_manifest_says(tmp_path: Path) -> None:
    folder = weights(tmp_path / "m/1", a=b"one", b=b"two")
    assert manifest.problems(folder, hashes=True) == []
    (folder / "a").write_bytes(b"eno")
    assert manifest.problems(folder) == []
    (said,) = manifest.problems(folder, hashes=True)
    assert said.startswith(f"{folder}/a: its sha256 is ")
    (folder / "a").write_bytes(b"ones")
    (folder / "b").unlink()
    assert manifest.problems(folder) == [f"{folder}/a: has 4 bytes, not 3", f"{folder}/b: not there"]


def test_a_host_is_asked_by_a_program(tmp_path: Path) -> None:
    folder = weights(tmp_path / "m/1", a=b"one")
    assert asked("check", folder).returncode == 0
    (folder / "a").write_bytes(b"eno")
    assert asked("check", folder).returncode == 0
    done = asked("check", "--hashes", folder)
    assert (done.returncode, "its sha256 is" in done.stderr) == (1, True)
    done = asked("check", tmp_path)
    assert (done.returncode, "not there, or no manifest" in done.stderr) == (1, True)
    seen = json.loads(asked("look", tmp_path, "/nowhere/*").stdout)
    assert list(seen["folders"]) == [str(folder)]
    assert seen["free"] > 0


def test_only_whole_weights_have_a_digest(tmp_path: Path) -> None:
    whole = weights(tmp_path / "m/whole", a=b"one")
    cut = weights(tmp_path / "m/cut", a=b"one")
    (cut / "a").write_bytes(b"on")
    garbage = weights(tmp_path / "m/garbage", a=b"one")
    (garbage / manifest.MANIFEST).write_text('{"files": {"a": 1}}')
    unfinished = weights(tmp_path / "m/.fetching-2/files", a=b"one").parent
    (tmp_path / "m/somebody's own").mkdir()
    seen = look(tmp_path)
    assert {path: found["digest"] is not None for path, found in seen.items()} == {
        str(whole): True,
        str(cut): False,
        str(unfinished): False,
    }


def test_weights_that_a_unit_names_are_in_use(tmp_path: Path) -> None:
    old, new = weights(tmp_path / "m/old", a=b"one"), weights(tmp_path / "m/new", a=b"one")
    unit = tmp_path / "sglang-m.service"
    unit.write_text(f"ExecStart=serve --model-path {new}\n")
    seen = look(tmp_path, tmp_path / "sglang-*.service")
    assert (seen[str(old)]["used"], seen[str(new)]["used"]) == (False, True)


def test_a_host_without_weights_has_none(tmp_path: Path) -> None:
    assert look(tmp_path / "not/there") == {}
