"""What front changes."""

import shlex
from collections.abc import Generator
from ipaddress import ip_address
from typing import Any

from pyinfra.api.command import StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from roles.base.operations import packages_installed
from roles.front.facts import FrontFacts
from roles.front.layout import CONFIG, PACKAGES, RUNNING, SELF_SIGNED, SELF_SIGNED_KEY, UNIT, Front


@operation()
def nginx_installed(seen: FrontFacts) -> Generator[Any]:
    """Install nginx without letting the distribution start one of its own.

    + seen: the host as it is
    """
    missing = sorted(set(PACKAGES) - seen.packages)
    if not missing:
        host.noop("nginx is installed")
        return
    fresh = "! systemctl cat nginx.service >/dev/null 2>&1"
    yield StringCommand(f"if {fresh}; then systemctl mask --quiet --runtime nginx.service; fi")
    yield from packages_installed._inner(packages=missing, installed=frozenset())
    masked = '[ "$(systemctl is-enabled nginx.service)" = masked-runtime ]'
    yield StringCommand(
        f"if {masked}; then systemctl unmask --quiet --runtime nginx.service; "
        "systemctl disable --quiet nginx.service; fi"
    )


@operation()
def certificate_made(needed: bool, name_of_host: str) -> Generator[StringCommand]:
    """Make a certificate that signs itself.

    + needed: whether there must be one and is none
    + name_of_host: that clients use
    """
    if not needed:
        host.noop("the certificate is there")
        return
    request = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-days", "3650", "-subj", f"/CN={name_of_host}", "-addext", f"subjectAltName={_alternative(name_of_host)}"),
        *("-keyout", f"{SELF_SIGNED_KEY}.new", "-out", SELF_SIGNED),
    ]
    folder = CONFIG.rpartition("/")[0]
    yield StringCommand(
        f"install -d {folder} && (umask 077 && {shlex.join(request)}) && chmod 0644 {SELF_SIGNED} && "
        f"mv {SELF_SIGNED_KEY}.new {SELF_SIGNED_KEY}"
    )


def _alternative(name: str) -> str:
    try:
        return f"IP:{ip_address(name)}"
    except ValueError:
        return f"DNS:{name}"


@operation()
def front_runs(front: Front, seen: FrontFacts) -> Generator[StringCommand]:
    """Let nginx run as declared, now and after a boot; requests under way are not cut off by a new configuration.

    + front: as it should be
    + seen: the host as it is
    """
    old = [file for file in front.files if _hash(seen, RUNNING[file.path]) != file.sha256]
    if not seen.enabled:
        yield StringCommand(f"systemctl enable --quiet {UNIT}")
    if seen.state != "active" or front.unit in old:
        yield StringCommand(f"systemctl daemon-reload && systemctl restart {UNIT}")
    elif old:
        yield StringCommand(f"systemctl reload {UNIT}")
    elif seen.enabled:
        host.noop("nginx runs as declared")


def _hash(seen: FrontFacts, path: str) -> str | None:
    return seen.files[path].sha256 if path in seen.files else None


@operation()
def front_removed(seen: FrontFacts) -> Generator[StringCommand]:
    """Stop nginx and remove its files; packages and certificates are kept.

    + seen: the host as it is
    """
    left = [path for path in RUNNING if path in seen.files]
    if not left:
        host.noop("there is no front")
        return
    yield StringCommand(
        f"systemctl disable --now --quiet {UNIT}; rm -f {shlex.join(left)} && systemctl daemon-reload"
    )
