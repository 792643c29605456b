"""The program that builds a release on a host, with a stand-in for uv that makes a very small one."""

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from roles.sglang import builder, checker

SMALL_UV = """#!/bin/sh
# Stands in for uv: `uv venv … DIR` makes a Python that runs, `uv pip sync` installs one package.
echo "$@" >> {log}
case "$1 $2" in
venv*)
    for last; do :; done
    mkdir -p "$last/bin" "$last/lib/python3/site-packages"
    printf '#!/bin/sh\\nexit 0\\n' > "$last/bin/python"; chmod +x "$last/bin/python" ;;
"pip sync") mkdir {folder}/release/lib/python3/site-packages/sglang; exit {status} ;;
esac
"""


class Host:
    """A host in a folder: `build()` is one run of the builder, as the role starts it."""

    def __init__(self, root: Path) -> None:
        self.releases = root / "releases"
        self.units = root / "units"
        self.good = root / "good"
        self.log = root / "uv.log"
        self.uv = root / "uv-1"
        self.units.mkdir()
        self.good.mkdir()
        self.log.touch()

    def build(self, name: str = "1-a", uv_status: int = 0) -> Path:
        folder = self.releases / f".building-{name}"
        folder.mkdir(parents=True, exist_ok=True)
        instructions = {
            "pythons": [f"{sys.version_info.major}.{sys.version_info.minor}"],
            "release": str(self.releases / name),
            "lock_sha256": name,
            "uv_directory": str(self.uv),
            "uv_cache": "/cache",
            "user": "nobody",
            "units": [str(self.units), str(self.good)],
        }
        (folder / "instructions.json").write_text(json.dumps(instructions))
        program = self.uv / "bin" / "uv"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(SMALL_UV.format(log=self.log, folder=folder, status=uv_status))
        program.chmod(0o755)
        builder.main(folder)
        return self.releases / name

    def names(self) -> set[str]:
        return {path.name for path in self.releases.iterdir()}

    @property
    def syncs(self) -> int:
        return self.log.read_text().count("pip sync")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(builder, "check", lambda *_: None)
    monkeypatch.setattr(builder, "check_readable", lambda *_: None)
    monkeypatch.setattr(os, "sync", lambda: None)
    return Host(tmp_path)


def test_a_release_is_put_in_place_complete_and_nothing_else_is_left(host: Host) -> None:
    release = host.build()
    assert (release / builder.MARKER).read_text().splitlines() == [
        "1-a",
        "bin/python",
        "lib/python3/site-packages/sglang",
    ]
    assert host.names() == {"1-a"}
    assert "pip sync --python" in host.log.read_text()
    assert "--require-hashes" in host.log.read_text()


@pytest.mark.parametrize(("cores", "compiled"), [(2, False), (96, True)])
def test_many_cores_compile_every_module(
    cores: int, compiled: bool, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    host.build()
    assert ("--compile-bytecode" in host.log.read_text()) == compiled


def test_a_complete_release_is_not_built_again(host: Host) -> None:
    host.build()
    host.build()
    assert host.syncs == 1


def test_an_install_that_fails_puts_nothing_in_place_and_the_next_run_completes_it(host: Host) -> None:
    with pytest.raises(SystemExit, match=r"failed: .*pip sync"):
        host.build(uv_status=1)
    assert host.names() == {".building-1-a"}
    host.build()
    assert host.names() == {"1-a"}


def test_a_release_that_fails_its_check_is_not_put_in_place(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "check", lambda *_: sys.exit("the release does not work"))
    with pytest.raises(SystemExit, match="does not work"):
        host.build()
    assert host.names() == {".building-1-a"}
    assert not list(host.releases.rglob(builder.MARKER))


def test_what_was_built_before_a_kill_is_used(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(builder, "put_in_place", killed)
        with pytest.raises(KeyboardInterrupt):
            host.build()
    host.build()
    assert host.syncs == 1
    assert host.names() == {"1-a"}


def without_package(release: Path) -> None:
    (release / "lib/python3/site-packages/sglang").rmdir()


def without_marker(release: Path) -> None:
    (release / builder.MARKER).unlink()


def with_broken_python(release: Path) -> None:
    (release / "bin/python").write_text("#!/bin/sh\nexit 1\n")


@pytest.mark.parametrize("damage", [without_package, without_marker, with_broken_python])
def test_a_damaged_release_is_replaced(host: Host, damage: Callable[[Path], None]) -> None:
    release = host.build()
    damage(release)
    host.build()
    assert host.syncs == 2
    assert builder.is_complete(release, "1-a")
    assert host.names() == {"1-a"}


def test_another_python_than_the_locks_is_refused(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "python_version_tuple", lambda: ("3", "10", "12"))
    with pytest.raises(SystemExit, match=r"python3 is 3\.10; the lock is for 3\."):
        host.build()
    assert host.syncs == 0


@pytest.mark.parametrize("folder", ["units", "good"])
def test_releases_that_nothing_uses_go_and_the_last_two_stay(host: Host, folder: str) -> None:
    for age, name in enumerate(["used", "old", "older"]):
        os.utime(host.build(name) / builder.MARKER, (1000 - age, 1000 - age))
    (getattr(host, folder) / "sglang-x.service").write_text(f"ExecStart={host.releases}/older/bin/sglang serve\n")
    host.build("new")
    assert host.names() == {"new", "used", "older"}


def test_the_oldest_go_first() -> None:
    assert builder.unused(["d", "c", "b", "a"], used={"a"}) == ["b"]
    assert builder.unused(["b", "a"], used=set()) == []


@pytest.fixture
def built() -> Iterator[Path]:
    """A release in a folder that everybody may pass."""
    if os.geteuid() != 0:
        pytest.skip("only root may become another user")
    with tempfile.TemporaryDirectory() as above:
        Path(above).chmod(0o755)
        built = Path(above) / "release"
        for file in (built / "lib/module.py", built / "bin/sglang", Path(above) / "python3"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        (built / "bin/python").symlink_to("../../python3")
        yield built


def test_a_release_that_the_server_can_read_is_accepted(built: Path) -> None:
    builder.check_readable(built, "nobody")


@pytest.mark.parametrize(
    ("closed", "mode"), [("lib/module.py", 0o600), ("lib", 0o744), ("bin/python", 0o700), ("", 0o700)]
)
def test_what_the_server_cannot_read_is_named(built: Path, closed: str, mode: int) -> None:
    (built / closed).chmod(mode)
    with pytest.raises(SystemExit, match=f"^{built / closed}: the user nobody may not read it$"):
        builder.check_readable(built, "nobody")


def test_a_closed_folder_above_is_named(built: Path) -> None:
    built.parent.chmod(0o700)
    with pytest.raises(SystemExit, match=f"^{built.parent}: the user nobody may not read it$"):
        builder.check_readable(built, "nobody")


@pytest.mark.parametrize(("modules", "status", "said"), [(("json",), 0, ""), (("no_such",), 1, "No module named")])
def test_the_checker_ends_with_what_it_found(tmp_path: Path, modules: Sequence[str], status: int, said: str) -> None:
    (tmp_path / "lock.txt").write_text(f"pytest=={pytest.__version__}\n")
    program = f"from roles.sglang import checker; checker.MODULES = {modules}; checker.NEEDS_DRIVER = (); "
    program += f"checker.main(checker.Path({str(tmp_path / 'lock.txt')!r}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert said in done.stderr
    assert bool(said) == bool(done.stderr)


def test_the_checker_compares_with_what_the_lock_wants_on_this_python() -> None:
    lock = ["# made by make lock\n", "packaging==0.1 \\\n", "    --hash=sha256:0\n"]
    lock += [
        f"pytest=={pytest.__version__} \\\n",
        "nothing==1 ; python_full_version < '3.0' \\\n",
        "no-such-package==2 \\\n",
    ]
    wanted = checker.locked(lock)
    assert wanted == {"packaging": "0.1", "pytest": pytest.__version__, "no-such-package": "2"}
    first, second = checker.differences(wanted)
    assert first.startswith("packaging is ")
    assert first.endswith(", but 0.1 in the lock")
    assert second == "no-such-package is not installed, but 2 in the lock"


def test_the_checker_says_what_cannot_be_imported() -> None:
    assert checker.failures(["json", "no_such_module"]) == [
        "no_such_module cannot be imported: No module named 'no_such_module'"
    ]
