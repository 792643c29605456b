"""Reboot a host in the middle of a run."""

import time
from contextlib import suppress
from typing import Final

from pyinfra.api.host import Host

from roles.lock import check_lock, lock_program
from roles.remote import ConnectionLost, RemoteError, attempt, reconnect, run

LIMIT: Final = 1800
"""Seconds; large servers count and train their memory for many minutes."""

_BOOT_ID: Final = "cat /proc/sys/kernel/random/boot_id"


def reboot(host: Host) -> None:
    """Reboot the host and connect again to its next boot.

    Raises RemoteError if that does not answer in time, Refusal if another run was there first.
    """
    before = run(host, _BOOT_ID)
    with suppress(ConnectionLost):  # the end of the command may not get through
        run(host, "systemctl reboot")
    deadline = time.monotonic() + LIMIT
    while not _rebooted(host, before):
        if time.monotonic() > deadline:
            raise RemoteError(f"does not answer after {LIMIT // 60} minutes")
        time.sleep(1)  # nothing announces a boot
    check_lock(run(host, lock_program()).splitlines(), host.name)  # it was the old connection's
    attempt(host, "udevadm settle --timeout=120")  # which loads the driver


def _rebooted(host: Host, before: str) -> bool:
    try:
        reconnect(host)
        return run(host, _BOOT_ID) != before
    except RemoteError:
        return False
