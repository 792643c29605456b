"""Following a start: `systemctl` and `journalctl` are small programs of this test, first on PATH."""

import os
import time
from pathlib import Path

import pytest

from roles.serve import start

# Waits until the journal of this test has been printed, so that nothing depends on time.
SYSTEMCTL = """\
#!/bin/sh
case $1 in
    show) echo ActiveState={state}; echo InactiveExitTimestampMonotonic={began} ;;
    start) read word < {folder}/{until}; exit {status} ;;
esac
"""
JOURNALCTL = """\
#!/bin/sh
echo "$@" > {folder}/asked
cat {folder}/journal
echo done > {folder}/printed
exec cat {folder}/never
"""


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Systemd":
    return Systemd(tmp_path, monkeypatch)


class Systemd:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        for pipe in ("printed", "never"):
            os.mkfifo(folder / pipe)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def will(
        self, *, log: str, status: int = 0, until: str = "printed", state: str = "inactive", began: int = 0
    ) -> None:
        (self._folder / "journal").write_text(log)
        for name, program in (("systemctl", SYSTEMCTL), ("journalctl", JOURNALCTL)):
            path = self._folder / name
            path.write_text(program.format(folder=self._folder, status=status, until=until, state=state, began=began))
            path.chmod(0o755)

    @property
    def asked(self) -> str:
        return (self._folder / "asked").read_text()


def test_a_start_that_succeeds_is_told_and_returned(systemd: Systemd, capfd: pytest.CaptureFixture[str]) -> None:
    systemd.will(log="Load weight begin. avail mem=93.30 GB\n", status=0)

    assert start.main(["sglang-x.service", "900"]) == 0
    assert capfd.readouterr().out.endswith("    0 s of at most 900 s: ready\n")


def test_a_start_that_fails_is_told_and_returned(systemd: Systemd, capfd: pytest.CaptureFixture[str]) -> None:
    systemd.will(log="", status=1)

    assert start.main(["sglang-x.service", "900"]) == 1
    assert capfd.readouterr().out.endswith("of at most 900 s: failed\n")


def test_a_start_under_way_is_joined_with_its_own_beginning(
    systemd: Systemd, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 150.0)
    monkeypatch.setattr(time, "time", lambda: 10_000.0)
    systemd.will(log="", status=0, state="activating", began=80_000_000)

    start.main(["sglang-x.service", "900"])

    assert capfd.readouterr().out.endswith("   70 s of at most 900 s: ready\n")
    assert "--unit=sglang-x.service --since=@9930.000000" in systemd.asked


def test_a_server_that_has_loaded_and_never_binds_is_given_up(
    systemd: Systemd, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "BIND_LIMIT", -1.0)
    systemd.will(log="INFO:     Started server process [1]\n", until="never")

    assert start.main(["sglang-x.service", "900"]) == 1
    assert "loaded, but did not bind its port" in capfd.readouterr().out


def test_a_server_that_is_not_ready_within_the_limit_of_its_own_start_is_given_up(
    systemd: Systemd, capfd: pytest.CaptureFixture[str]
) -> None:
    systemd.will(log="Load weight begin. avail mem=1 GB\n", until="never", state="activating", began=0)

    assert start.main(["sglang-x.service", "1"]) == 1
    assert capfd.readouterr().out.endswith(f"of at most 1 s: {start.LATE}\n")


def test_a_new_phase_is_told_though_the_journal_arrives_in_pieces(
    capfd: pytest.CaptureFixture[str],
) -> None:
    follower = start.Follower(time.monotonic(), 900)

    follower.hear(b"Load wei")
    follower.hear(b"ght begin. avail mem=1 GB\nUvicorn runn")

    assert capfd.readouterr().out == "    0 s of at most 900 s: loading weights\n"


def test_silence_is_broken_by_what_is_still_going_on(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = start.Follower(0.0, 900)
    follower.hear(b"Multi-thread loading shards:  50% Completed | 32/64 [00:05<00:05,  6.4it/s]\n")
    told = time.monotonic()
    capfd.readouterr()

    monkeypatch.setattr(time, "monotonic", lambda: told + 5)
    follower.beat()
    assert capfd.readouterr().out == ""

    monkeypatch.setattr(time, "monotonic", lambda: told + 11)
    follower.beat()
    assert capfd.readouterr().out.endswith("loading weights, 32 of 64 files\n")
