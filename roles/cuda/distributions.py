"""Where a distribution gets NVIDIA's driver from, and what it calls the packages. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from roles.refusal import Refusal

NVIDIA: Final = "https://developer.download.nvidia.com/compute/cuda/repos"

KEY_FILE: Final = "3bf863cc.pub"
"""Name of the signing key inside each of NVIDIA's repositories."""

KEY_FINGERPRINT: Final = "EB693B3035CD5710E231E123A4B469963BF863CC"
"""That key's fingerprint, so that no other key can take its place."""


class Distribution(NamedTuple):
    """Debian or Ubuntu, of one version."""

    id: str
    version: str
    """`12`, `24.04`"""

    @property
    def repository(self) -> str:
        """URL of NVIDIA's apt repository for it."""
        return f"{NVIDIA}/{self.id}{self.version.replace('.', '')}/x86_64"

    @property
    def driver_from_nvidia(self) -> bool:
        """Whether the driver comes from NVIDIA's repository: Debian's own is too old for Blackwell."""
        return self.id == "debian"

    def driver_packages(self, branch: int, *, kernel: str, nvswitch: bool) -> tuple[str, ...]:
        """The open-module driver of a branch without its desktop part, and what dkms builds it with.

        Debian names are those of NVIDIA's driver installation guide (compute only), Ubuntu's those of its archive.
        """
        if self.id == "debian":
            driver = [f"nvidia-driver-pinning-{branch}", "nvidia-kernel-open-dkms", "nvidia-driver-cuda"]
            driver += ["nvidia-persistenced", "linux-headers-amd64"]
            fabric = "nvidia-fabricmanager"
        else:
            driver = [f"nvidia-headless-{branch}-server-open", f"nvidia-utils-{branch}-server"]
            driver += ["linux-headers-generic"]
            fabric = f"nvidia-fabricmanager-{branch}"
        return (*driver, "dkms", f"linux-headers-{kernel}", *((fabric,) if nvswitch else ()))


def distribution(os_release: Mapping[str, str]) -> Distribution:
    """From the pairs of /etc/os-release. Raises Refusal for others than Debian and Ubuntu."""
    found = Distribution(os_release.get("ID", "").strip('"'), os_release.get("VERSION_ID", "").strip('"'))
    if found.id not in ("debian", "ubuntu"):
        raise Refusal(
            f"the distribution is {found.id or 'unknown'}, expected debian or ubuntu: install driver and toolkit "
            "yourself and set `cuda_driver: require` and `cuda_toolkit: pypi`."
        )
    return found
