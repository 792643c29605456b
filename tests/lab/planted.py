"""A secret that tests plant, and where it is found again."""

from pathlib import Path
from typing import Final

from tests.lab import hosts
from tests.lab.conftest import ROOT

PLANTED: Final = "planted-0123456789"
"""Is in every secret of the tests, and in nothing else."""

KEPT: Final = ("/etc/slipway/credentials/", "/run/credentials/sglang-tiny-tp1.service/")
"""Where secrets belong: what root keeps, and what systemd hands to the server."""

# sudo writes each command to the journal, and this one must not be what it finds there.
_PATTERN: Final = f"[{PLANTED[0]}]{PLANTED[1:]}"


def shown_by(*commands: str) -> list[str]:
    """Which of these commands print a secret when they are run on the host."""
    search = f"grep --text --only-matching --max-count=1 '{_PATTERN}' || true"
    return [command for command in commands if hosts.run("lab", f"{{ {command}; }} 2>/dev/null | {search}")]


def files_on_the_host() -> list[str]:
    """The text files that hold a secret, wherever Slipway or systemd writes any."""
    return hosts.run("lab", f"grep -rlsI '{_PATTERN}' /etc /opt/slipway/host /run /tmp /var || true").split()


def files_on_the_controller(*folders: Path) -> list[Path]:
    """The files that hold a secret among what a run leaves on this side, and in these folders."""
    places = [ROOT / "results", *folders]
    files = [ROOT / "pyinfra-debug.log", *(file for folder in places for file in folder.rglob("*"))]
    return [file for file in files if file.is_file() and PLANTED in file.read_text(errors="replace")]
