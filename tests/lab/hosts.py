"""The lab's hosts by name: booted systemd machines without GPUs, reached over SSH as real ones are.

Every function may be called again at any time, also after an earlier call was killed.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Final

from tests.lab import base, nspawn, prerequisites
from tests.lab.command import do
from tests.lab.places import CHECKOUT, KEY, KNOWN_HOSTS, LAB, LOCK, TRASH, UV_CACHE, LabError, Place, existing

BOOT_SECONDS: Final = 120
"""Long enough for a busy machine; a boot takes about 3."""


def as_root(action: Callable[[str], None]) -> Callable[[str], None]:
    """Do `action` as root, one at a time."""

    @wraps(action)
    def wrapper(name: str = "lab") -> None:
        if os.geteuid() == 0:
            with _alone():
                action(name)
            return
        command = ["sudo", "--preserve-env", sys.executable, "-m", "tests.lab", action.__name__, name]
        if subprocess.run(command, cwd=CHECKOUT, check=False).returncode:
            raise LabError(f"{action.__name__} {name} has failed")

    return wrapper


@as_root
def up(name: str) -> None:
    """Boot the host, which is made first if it does not exist; returns when it is fully up."""
    _begin(Place(name))


@as_root
def down(name: str) -> None:
    """End and remove the host; uv's cache is kept."""
    place = Place(name)
    _end(place)
    _discard(place.folder)
    _introduce()
    _discard(TRASH)


@as_root
def reset(name: str) -> None:
    """A fresh host of that name, booted, with nothing left of the old one but uv's cache."""
    _end(Place(name))
    _begin(Place(name))
    # Not waited for; `down` finishes it if it is killed.
    do("setsid", "--fork", "ionice", "--class", "idle", "rm", "-rf", TRASH)


def reboot(name: str = "lab") -> None:
    """Reboot the host and wait until it is fully up again."""
    place = Place(name)
    boot = _boot(place)
    run(name, "systemctl reboot", check=False)
    _wait(place, after=boot)


def run(name: str, command: str, *, check: bool = True) -> str:
    """The output of a shell command that root runs on the host.

    Raises LabError with the command's errors if it fails, unless `check` is false.
    """
    done = _ssh(Place(name), f"sudo sh -c {_quoted(command)}")
    if check and done.returncode:
        raise LabError(f"{name}: `{command}` exits {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def shell(name: str = "lab") -> None:
    """Become an interactive shell on the host."""
    command = ssh_command(Place(name))
    os.execvp(command[0], command)


def status(name: str) -> str:
    """One line about the host."""
    place = Place(name)
    if not nspawn.running(place):
        return f"{name}: not running"
    state = run(name, "systemctl is-system-running", check=False).strip()
    memory = run(name, "systemctl show --property=MemoryCurrent --value ssh.service").strip()
    limits = "enforced" if memory.isdecimal() else "not enforced, as this machine has no memory controller to give"
    return f"{name}: {state}, ssh on {place.address}:{place.port}, memory limits {limits}"


def ssh_command(place: Place, *options: str) -> list[str]:
    """The OpenSSH command line that logs in to the host."""
    return [
        *("ssh", "-F", "/dev/null", "-i", str(KEY), "-p", str(place.port)),
        *("-o", f"UserKnownHostsFile={KNOWN_HOSTS}", "-o", "StrictHostKeyChecking=yes"),
        *("-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "LogLevel=ERROR"),
        *options,
        f"{base.USER}@{place.address}",
    ]


def _ssh(place: Place, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ssh_command(place), command], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


@contextmanager
def _alone() -> Iterator[None]:
    LAB.mkdir(exist_ok=True)
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _begin(place: Place) -> None:
    """Make the host if it does not exist, boot it if it does not run, and wait until it is up."""
    prerequisites.install()
    if not place.root.is_dir():
        _make(place)
    _introduce()
    if not nspawn.running(place):
        nspawn.start(place)
    _wait(place)


def _make(place: Place) -> None:
    """A copy of the base system with the host's name, port and key."""
    pristine = base.ensure()
    new = place.folder / "root.new"
    _discard(new)
    place.claim_port()
    do("cp", "--archive", "--reflink=auto", pristine, new)
    (new / "etc/hostname").write_text(f"{place.name}\n")
    (new / "etc/hosts").write_text(f"127.0.0.1 localhost {place.name}\n::1 localhost\n")
    with (new / "etc/ssh/sshd_config.d/lab.conf").open("a") as sshd:
        sshd.write(f"Port {place.port}\n" + (f"ListenAddress {place.address}\n" if place.isolated else ""))
    keys = new / "etc/ssh/authorized_keys"
    keys.mkdir()
    shutil.copy(_public_key(), keys / base.USER)
    if UV_CACHE.is_dir() and not place.isolated:
        # Hard links: the kept cache and the host's share their files, and neither can lose the other's.
        do("cp", "--archive", "--link", UV_CACHE, new / "var/cache/uv")
    new.rename(place.root)


def _end(place: Place) -> None:
    """End the host and throw its disk away."""
    nspawn.kill(place)
    _keep_cache(place.root / "var/cache/uv")
    _throw_away(place.root)


def _keep_cache(cache: Path) -> None:
    """Keep a host's uv cache if it holds more than the one that is kept."""

    def size(folder: Path) -> int:
        return sum(1 for _ in folder.glob("archive-v*/*"))

    if size(cache) > size(UV_CACHE):
        _throw_away(UV_CACHE)
        cache.rename(UV_CACHE)


def _throw_away(tree: Path) -> None:
    """Out of the way at once; removed later."""
    if tree.exists():
        TRASH.mkdir(exist_ok=True)
        tree.rename(TRASH / str(time.time_ns()))


def _discard(folder: Path) -> None:
    """Remove a tree that may still be in the making, or half removed."""
    do("rm", "-rf", "--one-file-system", folder)


def _public_key() -> Path:
    public = KEY.with_suffix(".pub")
    if not public.is_file():
        KEY.unlink(missing_ok=True)
        do("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", KEY)
        owner = CHECKOUT.stat()
        for path in (KEY, public):
            os.chown(path, owner.st_uid, owner.st_gid)
    return public


def _introduce() -> None:
    """Write down the host keys, so that no connection has to trust what it meets."""
    lines = []
    for place in map(Place, existing()):
        key = place.root / "etc/ssh/ssh_host_ed25519_key.pub"
        if key.is_file():
            lines.append(f"[{place.address}]:{place.port} {key.read_text().strip()}\n")
    new = KNOWN_HOSTS.with_suffix(".new")
    new.write_text("".join(lines))
    new.rename(KNOWN_HOSTS)


def _boot(place: Place) -> str:
    """What tells one boot from another; empty if the host does not answer."""
    return _ssh(place, "cat /proc/sys/kernel/random/boot_id").stdout.strip()


def _wait(place: Place, after: str = "") -> None:
    """Wait until the host answers, in another boot than `after`, and has started all its services."""
    deadline = time.monotonic() + BOOT_SECONDS
    while _boot(place) in ("", after):
        if not nspawn.running(place) or time.monotonic() > deadline:
            last = place.console.read_text(errors="replace").splitlines()[-10:]
            raise LabError("\n".join([f"{place.name} does not come up; the end of its console:", *last]))
        time.sleep(0.1)  # nothing announces that a port has been opened
    state = _ssh(place, "systemctl is-system-running --wait").stdout.strip()
    if state != "running":
        failed = _ssh(place, "systemctl list-units --failed --plain --no-legend").stdout.strip()
        raise LabError(f"{place.name} is up, but {state}: {failed}")


def _quoted(command: str) -> str:
    return "'" + command.replace("'", "'\\''") + "'"
