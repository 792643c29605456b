"""The programs that building and booting a host needs on this machine."""

import os
import shutil
import subprocess
from typing import Final

PROGRAMS: Final = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "ssh": "openssh-client",
    "ip": "iproute2",
    "unshare": "util-linux",
}
"""Program -> the package of Debian and Ubuntu that brings it."""


def install() -> None:
    """Install what is missing."""
    missing = sorted({package for program, package in PROGRAMS.items() if not shutil.which(program)})
    if not missing:
        return
    print(f"lab: installing {', '.join(missing)}", flush=True)
    subprocess.run(["apt-get", "update", "--quiet"], check=True)
    subprocess.run(
        ["apt-get", "install", "--quiet", "--yes", "--no-install-recommends", *missing],
        check=True,
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
    )
