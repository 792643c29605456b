"""Running a program on this machine."""

import subprocess
from os import PathLike


def do(*command: str | PathLike[str], quiet: bool = False) -> None:
    """Run a program that dies with this process, so that nothing is still at work after a killed run.

    Raises subprocess.CalledProcessError if it fails.
    """
    stdout = subprocess.DEVNULL if quiet else None
    subprocess.run(["setpriv", "--pdeathsig", "KILL", "--", *command], check=True, stdout=stdout)
