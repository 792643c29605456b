"""Commands that bring packages of the driver and the toolkit onto a host. Pure.

Each function returns the commands still needed, none if the host is right already.
"""

import shlex
from collections.abc import Iterable, Set
from pathlib import PurePosixPath
from typing import Final

from roles.apt import INSTALL, alone
from roles.cuda.distributions import KEY_FILE, KEY_FINGERPRINT
from roles.paths import STATE

KEYRING: Final = "/etc/apt/keyrings/slipway-nvidia.asc"
SOURCE: Final = "/etc/apt/sources.list.d/slipway-nvidia.sources"

_KEY_PROOF: Final = f"{STATE}/nvidia-key"

PROVED_KEY: Final = f"sed -n 's/^{KEY_FINGERPRINT} //p' {_KEY_PROOF}"
"""A program that prints the SHA-256 of the keyring that was found to hold NVIDIA's key."""

_APT: Final = f"{INSTALL} --allow-change-held-packages"

_UPDATE: Final = "apt-get --quiet update"

_DRIVER: Final = "cuda-drivers|nvidia-driver|nvidia-open|nvidia-kernel|nvidia-dkms|nvidia-headless|libnvidia-compute"

_KEPT: Final = ("linux-image", "linux-headers", "linux-modules", "linux-generic")


def trust(uri: str, installed: Set[str]) -> list[str]:
    """Put NVIDIA's key, which its fingerprint tells, in place from the repository at `uri`, and remember its hash."""
    new = f"{KEYRING}.new"
    return [
        *install(["gpg"], installed),
        f"install -d -m 0755 {PurePosixPath(KEYRING).parent} && "
        f"curl --fail --silent --show-error --location --output {new} {shlex.quote(f'{uri}/{KEY_FILE}')} && "
        f"{{ gpg --show-keys --with-colons {new} | grep -q '^fpr:*{KEY_FINGERPRINT}:' || "
        f"{{ echo 'the key at {uri} has another fingerprint than {KEY_FINGERPRINT}' >&2; exit 1; }}; }}",
        f"echo {KEY_FINGERPRINT} $(sha256sum <{new} | cut -c -64) >{_KEY_PROOF}.new",
        f"mv {_KEY_PROOF}.new {_KEY_PROOF} && chmod 0644 {new} && mv {new} {KEYRING}",
    ]


def install(packages: Iterable[str], installed: Set[str]) -> list[str]:
    """Install what is missing, in apt's own order; a pinning package goes first, as it decides about the rest."""
    missing = [package for package in packages if package not in installed]
    pins = [package for package in missing if "-pinning-" in package]
    steps = [pins, missing] if pins else [missing] if missing else []
    commands = [*([_UPDATE] if steps else []), *(f"{_APT} {' '.join(step)}" for step in steps)]
    return [alone(command) for command in commands]


def install_toolkit(package: str, installed: Set[str]) -> list[str]:
    """Install the toolkit alone: `cuda-toolkit-13-0=13.0.3-*`. Fails if apt would bring a driver with it."""
    if package.split("=")[0] in installed:
        return []
    quoted = shlex.quote(package)
    return [
        alone(_UPDATE),
        f"plan=$({_APT} --simulate {quoted}) || exit 1; echo \"$plan\" | grep -E '^Inst ({_DRIVER})' >&2 && "
        f"{{ echo '{package} brings this driver, expected the toolkit alone' >&2; exit 1; }}; true",
        alone(f"{_APT} {quoted}"),
    ]


def hold(installed: Set[str], held: Set[str], *, installing: bool) -> list[str]:
    """Hold driver and kernel, so that no unattended upgrade parts the loaded module from its library.

    `installing`: packages are still to be installed by this run, so the host is asked again at that point.
    """
    if not installing and not any(_is_kept(name) for name in installed - held):
        return []
    patterns = " ".join(f"'{prefix}*'" for prefix in _KEPT)
    ask = f"dpkg-query --show --showformat='${{db:Status-Abbrev}} ${{Package}}\\n' '*nvidia*' {patterns} 2>/dev/null"
    return [alone(f"apt-mark hold $({ask} | sed -n 's/^[ih]i *//p')")]


def _is_kept(package: str) -> bool:
    return "nvidia" in package or package.startswith(_KEPT)
