"""Starting and ending a booted system in a folder, detached from whoever asked for it."""

import fcntl
import os
import re
import select
import signal
import subprocess
from pathlib import Path
from typing import Final

from tests.lab.command import do
from tests.lab.places import LabError, Place

KEEPER: Final = """\
echo $$ >"$1"; shift
while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs"; shift; done; shift
exec unshare --mount --pid --fork --kill-child --mount-proc \
    sh -c 'while "$@"; [ $? -eq 133 ]; do :; done' loop "$@"
"""
"""Runs systemd-nspawn again whenever the system inside has asked for a reboot (exit code 133).

All of it lives in a process namespace of its own: when this process ends, the kernel ends the whole host.
"""


def start(place: Place) -> None:
    """Boot the host; returns at once."""
    cgroups = [] if _systemd_runs() else _own_cgroups(place)
    for cgroup in cgroups:
        cgroup.mkdir(exist_ok=True)
    scope = ["systemd-run", "--scope", "--quiet", "--collect", "--property=Delegate=yes"]
    nspawn = [
        *("systemd-nspawn", f"--directory={place.root}", f"--machine={place.name}", "--boot"),
        *("--register=no", "--keep-unit", "--resolv-conf=copy-host", "--console=read-only"),
    ]
    if place.isolated:
        nspawn.append(f"--network-namespace-path=/run/netns/{_link(place)}")
    with place.keeper.open("a") as keeper, place.console.open("w") as console:
        fcntl.flock(keeper, fcntl.LOCK_EX | fcntl.LOCK_NB)
        subprocess.run(
            [
                *("setsid", "--fork"),
                *(scope if _systemd_runs() else []),
                *("sh", "-c", KEEPER, "keeper", str(place.keeper), *map(str, cgroups), "--", *nspawn),
            ],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            check=True,
            pass_fds=[keeper.fileno()],
            # A host's /tmp is on its disk, as Debian and Ubuntu have it.
            env=os.environ | {"SYSTEMD_NSPAWN_TMPFS_TMP": "0"},
        )


def running(place: Place) -> bool:
    if not place.keeper.exists():
        return False
    with place.keeper.open() as keeper:
        try:
            fcntl.flock(keeper, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def kill(place: Place) -> None:
    """End the host at once, in whatever state it is. Its disk is left as after a power cut."""
    if running(place):
        keeper = int(place.keeper.read_text())
        ended = select.poll()
        ended.register(os.pidfd_open(keeper))
        # The keeper ends when its child has, and the child, first of its namespace, after all the others.
        children = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
        for pid in children or [str(keeper)]:
            os.kill(int(pid), signal.SIGKILL)
        if not ended.poll(30_000):
            raise LabError(f"{place.name} does not end; process {keeper} keeps it")
    if place.isolated:
        _unlink(place)
    for cgroup in [] if _systemd_runs() else _own_cgroups(place):
        for folder, _, _ in os.walk(cgroup, topdown=False):
            Path(folder).rmdir()


def _link(place: Place) -> str:
    """The name of a network namespace in which nothing but this machine can be reached: there is no route."""
    _unlink(place)
    namespace = f"slipway-{place.name}"
    for command in (
        f"netns add {namespace}",
        f"link add {namespace} type veth peer name host0 netns {namespace}",
        f"addr add {place.gateway}/30 dev {namespace}",
        f"link set {namespace} up",
        f"-n {namespace} addr add {place.address}/30 dev host0",
        f"-n {namespace} link set host0 up",
        f"-n {namespace} link set lo up",
    ):
        do("ip", *command.split())
    return namespace


def _unlink(place: Place) -> None:
    """The link goes with the namespace, whose last process has ended."""
    subprocess.run(["ip", "netns", "delete", f"slipway-{place.name}"], capture_output=True, check=False)


def _systemd_runs() -> bool:
    return Path("/run/systemd/system").is_dir()


def _own_cgroups(place: Place) -> list[Path]:
    """Where systemd inside keeps its groups, on a machine without systemd: one folder for each host."""
    tree = Path("/sys/fs/cgroup")
    version_2 = tree / "unified" if (tree / "unified").is_dir() else tree
    found = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if match := re.fullmatch(r"\d+:(name=systemd)?:(/.*)", line):
            own = (tree / "systemd" if match[1] else version_2) / match[2].lstrip("/")
            found.append(own / f"slipway-{place.name}")
    return found
