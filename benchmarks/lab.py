"""The lab host that is deployed to: under many names, behind a slow link, or with a server that starts at once."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.site import UNIT, Site, make_site
from roles.base.layout import PACKAGES
from roles.serve.unit import TRIED, UNITS
from tests.lab import hosts
from tests.lab.places import CHECKOUT, KNOWN_HOSTS, Place

HOST: Final = "bench"
FRESH: Final = "bench-fresh"
"""A host for what can be measured only once on each."""

FRESH_PORT: Final = 30016
"""Of its server."""

_APT_INSTALL: Final = "apt-get -qy --no-install-recommends install"

_JOURNAL_SECONDS: Final = 5
"""That the journal may take to show what has happened."""

_FIRST_DOOR: Final = 24000
_FIRST_RELAY: Final = 25000

# Each has a lock of its own, so that one run can deploy to all of them.
_DOOR: Final = """[Service]
ExecStart=/usr/sbin/sshd -D -p %i
TemporaryFileSystem=/run/slipway
"""
_STAND_IN: Final = """[Service]
ExecStart=
ExecStart=/bin/sleep infinity
ExecStartPost=
"""
_DROP_IN: Final = f"{UNITS}/{UNIT}.d/stand-in.conf"

STARTING: Final = "7d4958e842da4a758f6c1cdc7b36dcc5"
STOPPING: Final = "de5b426a63be47a7b6ac3eaac82e2f6f"
"""What systemd calls its messages of these events (systemd/sd-messages.h)."""


def open_doors(count: int) -> list[int]:
    """Ports by which the host can be reached as if each were a host of its own."""
    ports = list(range(_FIRST_DOOR, _FIRST_DOOR + count))
    units = " ".join(f"door@{port}" for port in ports)
    hosts.run(HOST, f"{_written('/run/systemd/system/door@.service', _DOOR)}; systemctl start {units}")
    return ports


@contextmanager
def slow_link(ports: Sequence[int], *, delay: float = 0.0, rate: float = 0.0) -> Iterator[list[int]]:
    """Ports by which the same is reached over a slow link: see relay.py."""
    relays = list(range(_FIRST_RELAY, _FIRST_RELAY + len(ports)))
    pairs = [f"{relay}:{port}" for relay, port in zip(relays, ports, strict=True)]
    command = [sys.executable, "-m", "benchmarks.relay", str(delay), str(rate), *pairs]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE) as relay:
        assert relay.stdout
        relay.stdout.readline()
        try:
            yield relays
        finally:
            relay.terminate()


@contextmanager
def site(ports: Sequence[int] | None = None, **wishes: int) -> Iterator[Site]:
    """A site of the host behind these ports, or of the lab host by one of its own."""
    ports = ports or open_doors(1)
    # Every lab host has the same key.
    _, _, key = KNOWN_HOSTS.read_text().splitlines()[0].partition(" ")
    with TemporaryDirectory(prefix="bench-") as folder:
        known = Path(folder, "known_hosts")
        known.write_text("".join(f"[127.0.0.1]:{port} {key}\n" for port in ports))
        yield make_site(Path(folder, "site"), ports, known, **wishes)


def send(host: str, path: str, text: str) -> None:
    """Write a file that is too long for a command line."""
    subprocess.run([*hosts.ssh_command(Place(host)), f"cat > {path}"], input=text, text=True, check=True)


def serve_ansible(host: str) -> None:
    """Install the Python module that Ansible needs for apt.

    Ansible installs it where it is missing, but cannot use it in the same run with Mitogen, or on ten hosts in one.
    """
    hosts.run(host, f"apt-get -q update && {_APT_INSTALL} python3-apt")


def download_packages(host: str) -> None:
    """What base installs lies in apt's cache."""
    hosts.run(host, f"{_APT_INSTALL} --download-only {' '.join(PACKAGES)}")


@contextmanager
def stand_in() -> Iterator[None]:
    """Meanwhile the unit starts a program that does nothing, at once, instead of SGLang."""
    hosts.run(HOST, f"cp {UNITS}/{UNIT} /root/; mkdir -p {Path(_DROP_IN).parent}; {_written(_DROP_IN, _STAND_IN)}")
    put_back()
    try:
        yield
    finally:
        hosts.run(HOST, f"rm -r {Path(_DROP_IN).parent}")
        put_back()


def put_back() -> None:
    """The unit as it was when `stand_in` began, running."""
    hosts.run(
        HOST,
        f"while systemctl list-jobs --no-legend | grep -q {UNIT}; do sleep 0.1; done;"
        f"rm -f {TRIED}/{UNIT}; cp /root/{UNIT} {UNITS}/ && systemctl daemon-reload && systemctl restart {UNIT}",
    )


def moment(host: str, event: str, since: float, process: int) -> float | None:
    """When systemd says `event` of the server's unit, in seconds of the monotonic clock; None if it does not.

    `since` is in seconds of the epoch: what was said after it counts. When `process` ends, nothing more will be said.
    """
    asked = f"journalctl --follow --no-tail --output=json --since=@{since:.6f} MESSAGE_ID={event} UNIT={UNIT}"
    with subprocess.Popen(
        [*hosts.ssh_command(Place(host)), f"sudo {asked}"], stdout=subprocess.PIPE, text=True
    ) as journal:
        assert journal.stdout
        said, ended = journal.stdout.fileno(), os.pidfd_open(process)
        select.select([said, ended], [], [])
        found, _, _ = select.select([said], [], [], _JOURNAL_SECONDS)
        line = journal.stdout.readline() if found else ""
        os.close(ended)
        journal.terminate()
    return int(json.loads(line)["__MONOTONIC_TIMESTAMP"]) / 1e6 if line else None


def _written(path: str, text: str) -> str:
    return f"printf '%s' '{text}' > {path}"
