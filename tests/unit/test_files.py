"""roles.files and roles.observation: what is read back is what was declared, in a real shell."""

import subprocess
from pathlib import Path

from roles.files import File, Seen, files_program, files_seen, write
from roles.observation import all_of, observed


def shell(program: str) -> list[str]:
    return subprocess.run(["sh", "-c", program], capture_output=True, text=True, check=True).stdout.splitlines()


def test_a_written_file_is_seen_as_declared(tmp_path: Path) -> None:
    owner = shell("id -un; id -gn")
    path = str(tmp_path / "made" / "a name with $(touch x) and 'quotes'")
    file = File(path, 'x = "é"\n' * 20_000, mode="0640", user=owner[0], group=owner[1])
    for command in write(file):
        shell(str(command))
    assert files_seen(shell(files_program([path]))) == {path: Seen(file.sha256, "0640", *owner)}
    assert [entry.name for entry in Path(path).parent.iterdir()] == [Path(path).name]


def test_a_file_that_cannot_be_written_is_named_and_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_text("old")
    full = f"trap '' XFSZ; ulimit -f 0; {next(write(File(str(path), 'new')))}"
    done = subprocess.run(["sh", "-c", full], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith(f"{path} could not be written, and is as it was\n")
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("kept", "old")]


def test_absent_files_are_not_seen(tmp_path: Path) -> None:
    program = files_program([str(tmp_path / "missing")]) + " || true"
    assert files_seen(shell(program)) == {}


def test_programs_are_told_apart_and_a_failing_one_is_empty() -> None:
    output = shell(all_of({"first": "printf 'a\\n\\nb'", "failing": "exit 3", "last": "echo c"}))
    assert observed(output) == {"first": ["a", "", "b"], "failing": [], "last": ["c"]}
