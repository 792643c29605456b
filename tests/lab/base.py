"""The pristine system of a lab host: made once, then copied for every new host."""

import hashlib
import shutil
from dataclasses import astuple
from pathlib import Path
from typing import Final

from tests.lab import machine
from tests.lab.command import do
from tests.lab.places import BASE, LAB

USER: Final = "deploy"
"""Who logs in over SSH: not root, so that becoming root is part of every test."""

PACKAGES: Final = (
    "systemd,systemd-sysv,dbus,libpam-systemd,openssh-server,sudo,python3,ca-certificates,curl,iproute2,procps"
)
"""What an installed server has anyway. Everything else is for the roles to bring."""

STUB: Final = Path(__file__).parent / "stub"
"""Python packages that stand in for what needs a GPU; on a host in /opt/lab/stub."""

SSHD: Final = """\
ListenAddress 127.0.0.1
PasswordAuthentication no
PermitRootLogin no
AuthorizedKeysFile /etc/ssh/authorized_keys/%u
"""


def ensure() -> Path:
    """The root of an up-to-date base system."""
    settings = machine.settings()
    digest = _digest(settings)
    digest_file = BASE / "digest"
    if not digest_file.is_file() or digest_file.read_text() != digest:
        _build(settings, digest)
    return BASE / "root"


def _digest(settings: machine.Settings) -> str:
    """Of everything that the base system is made from."""
    made_from = [repr(astuple(settings)).encode(), Path(__file__).read_bytes()]
    made_from += [path.read_bytes() for path in sorted(STUB.rglob("*.py"))]
    return hashlib.sha256(b"\0".join(made_from)).hexdigest()


def _build(settings: machine.Settings, digest: str) -> None:
    print("lab: building the base system, which takes about a minute", flush=True)
    new = LAB / "base.new"
    _remove(new)
    new.mkdir(parents=True)
    _bootstrap(new / "root", settings)
    _configure(new / "root", settings)
    (new / "digest").write_text(digest)
    _remove(BASE)
    new.rename(BASE)


def _bootstrap(root: Path, settings: machine.Settings) -> None:
    """The distribution of this machine, whose mirror and keys are at hand."""
    do(
        # In namespaces of its own, so that not even SIGKILL can leave a process or a mount behind.
        *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
        *("mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "--dpkgopt=force-unsafe-io"),
        *(f"--aptopt={option}" for option in settings.apt_options),
        machine.os_release()["VERSION_CODENAME"],
        root,
        *settings.apt_sources,
    )


def _configure(root: Path, settings: machine.Settings) -> None:
    # uv hard-links from its cache into environments, which works only inside one file system.
    pairs = {**settings.environment, "UV_CACHE_DIR": "/var/cache/uv"}.items()
    quoted = " ".join(f'"{name}={value}"' for name, value in pairs).replace("%", "%%")
    files = {
        "etc/ssh/sshd_config.d/lab.conf": SSHD,
        f"etc/sudoers.d/{USER}": f"Defaults env_file=/etc/environment\n{USER} ALL=(ALL) NOPASSWD: ALL\n",
        "etc/environment": "".join(f"{name}={value}\n" for name, value in pairs),
        "etc/systemd/system.conf.d/registries.conf": f"[Manager]\nDefaultEnvironment={quoted}\n",
        "etc/pip.conf": settings.pip_conf,
        "etc/uv/uv.toml": settings.uv_toml,
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    shutil.copytree(STUB, root / "opt/lab/stub", ignore=shutil.ignore_patterns("__pycache__"))
    _trust(root, settings.certificates)
    _inside(root, "useradd", "--create-home", "--shell", "/bin/bash", USER)
    _inside(root, "systemctl", "--quiet", "disable", "ssh.socket")
    _inside(root, "systemctl", "--quiet", "enable", "ssh.service")


def _trust(root: Path, certificates: tuple[str, ...]) -> None:
    """Add the certificates that the machine trusts beyond those of the distribution."""
    known = set(machine.certificates((root / machine.CA_BUNDLE.lstrip("/")).read_text()))
    for number, certificate in enumerate(c for c in certificates if c not in known):
        (root / f"usr/local/share/ca-certificates/machine-{number}.crt").write_text(f"{certificate}\n")
    _inside(root, "update-ca-certificates")


def _inside(root: Path, *command: str) -> None:
    do("chroot", root, *command, quiet=True)


def _remove(tree: Path) -> None:
    do("rm", "-rf", "--one-file-system", tree)
