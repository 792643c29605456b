"""What cuda reads from a host, in one round trip."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pyinfra.api.host import Host

from roles.cuda.host_settings import PATHS, POWER_UNIT, Live
from roles.cuda.packages import KEYRING, PROVED_KEY, SOURCE
from roles.cuda.settings import CudaSettings
from roles.cuda.toolkit import look
from roles.files import File, Seen, files_program, files_seen
from roles.observation import observe
from roles.preflight.facts import DRIVER, HOST, PCI, SMI_SECONDS, bounded
from roles.preflight.host_facts import HostFacts
from roles.preflight.parse import host_facts

_SMI: Final = (
    "command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=compute_cap,power.limit --format=csv,noheader,nounits"
)

_PACKAGES: Final = r"""
dpkg-query --show --showformat='${db:Status-Abbrev} ${Package}\n' '*nvidia*' 'cuda-*' 'dkms' 'gpg' 'linux-image*' \
    'linux-headers*' 'linux-modules*' 'linux-generic*'
"""

_LIVE: Final = f"""
echo "hmm=$(cat /sys/module/nvidia_uvm/parameters/uvm_disable_hmm)"
[ -d /sys/module/nvidia_uvm ] && echo uvm=loaded
echo "persistenced=$(systemctl is-enabled nvidia-persistenced) $(systemctl is-active nvidia-persistenced)"
echo "fabricmanager=$(systemctl is-enabled nvidia-fabricmanager) $(systemctl is-active nvidia-fabricmanager)"
echo "power_limit=$(systemctl is-enabled {POWER_UNIT})"
[ /etc/default/grub.d -nt /boot/grub/grub.cfg ] && echo stale_boot=yes
[ /etc/modprobe.d -nt "/boot/initrd.img-$(uname -r)" ] && echo stale_initramfs=yes
"""


class Toolkit(NamedTuple):
    """The toolkit as it is; versions are empty where there is none."""

    nvcc: str
    torch: str
    """The CUDA version that the release's torch was built for."""
    whole: bool
    identity: str
    """Changes with the toolkit's files."""
    proved: str
    """What the last successful proof was for."""

    def proof(self, capability: str) -> str:
        """What a successful proof writes down: this toolkit compiles for this compute capability."""
        return f"{self.identity} for {capability}"


class CudaFacts(NamedTuple):
    """The host as cuda found it."""

    os_release: Mapping[str, str]
    machine: HostFacts
    """Only its driver, slots, and what the kernel says."""
    live: Live
    installed: frozenset[str]
    held: frozenset[str]
    """Packages that apt leaves alone, of those installed."""
    capabilities: tuple[str, ...]
    files: Mapping[str, Seen]
    proved_key: str
    """SHA-256 of the keyring that was last found to hold NVIDIA's key."""
    persistenced: str
    fabricmanager: str
    """`enabled active` when systemd keeps it running."""
    toolkit: Toolkit

    @property
    def driver_version(self) -> str | None:
        """The loaded driver's, or None on a host that has no GPU and needs none."""
        return self.machine.driver.loaded if self.machine.slots else None

    @property
    def trusts_nvidia(self) -> bool:
        """Whether the keyring is still the one that was found to hold NVIDIA's key."""
        return self.files.get(KEYRING) == Seen(self.proved_key, mode="0644", user="root", group="root")

    def has(self, file: File) -> bool:
        """Whether the host has the file as it should be."""
        return self.files.get(file.path) == file.as_seen


def cuda_facts(host: Host, settings: CudaSettings, home: str, release: str) -> CudaFacts:
    """The host now, for the settings and the toolkit at `home` beside the release at path `release`."""
    names = " ".join(shlex.quote(name) for name in settings.sysctl)
    seen = observe(
        host,
        {
            "os": "cat /etc/os-release",
            "pci": PCI,
            "driver": DRIVER,
            "host": HOST,
            "gpus": bounded(_SMI, SMI_SECONDS),
            "packages": _PACKAGES,
            "live": _LIVE,
            "sysctl": f'for name in {names}; do echo "$name=$(sysctl -n "$name")"; done',
            "files": files_program([*PATHS, KEYRING, SOURCE]),
            "key": PROVED_KEY,
            "toolkit": look(home, release),
        },
    )
    return facts_from(seen)


def facts_from(seen: Mapping[str, Sequence[str]]) -> CudaFacts:
    """The facts in the programs' lines."""
    machine = host_facts(seen)
    live, toolkit = _pairs(seen["live"]), _pairs(seen["toolkit"])
    gpus = [line.split(", ") for line in seen["gpus"] if line.count(", ") == 1]
    packages = [line.split() for line in seen["packages"] if len(line.split()) == 2]
    return CudaFacts(
        os_release=_pairs(seen["os"]),
        machine=machine,
        live=Live(
            loaded_driver=machine.driver.loaded,
            installed_driver=machine.driver.installed,
            boot_parameters=machine.boot_parameters,
            hmm_disabled=live.get("hmm") in ("Y", "1"),
            uvm_loaded="uvm" in live,
            stale_boot="stale_boot" in live,
            stale_initramfs="stale_initramfs" in live,
            sysctl=_pairs(seen["sysctl"]),
            power_unit_enabled=live.get("power_limit") == "enabled",
            power_limits=tuple(float(watts) for _, watts in gpus if watts.replace(".", "", 1).isdigit()),
        ),
        installed=frozenset(name for status, name in packages if status.endswith("i")),
        held=frozenset(name for status, name in packages if status == "hi"),
        capabilities=tuple(sorted({capability for capability, _ in gpus})),
        files=files_seen(seen["files"]),
        proved_key="".join(seen["key"]),
        persistenced=live.get("persistenced", ""),
        fabricmanager=live.get("fabricmanager", ""),
        toolkit=Toolkit(
            nvcc=toolkit.get("nvcc", ""),
            torch=toolkit.get("torch", ""),
            whole="whole" in toolkit,
            identity=toolkit.get("identity", ""),
            proved=toolkit.get("proved", ""),
        ),
    )


def _pairs(lines: Sequence[str]) -> dict[str, str]:
    return {name: value.strip() for name, found, value in (line.partition("=") for line in lines) if found}
