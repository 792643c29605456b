"""What a host was seen to have. Pure."""

import re
from dataclasses import dataclass

from roles.preflight.hardware import Hardware


@dataclass(frozen=True)
class Link:
    """A PCIe link. 0 where the device does not say."""

    generation: int
    width: int

    def __str__(self) -> str:
        return f"Gen{self.generation or '?'} x{self.width or '?'}"


@dataclass(frozen=True)
class Slot:
    """A GPU as the PCI bus shows it, whether a driver answers for it or not."""

    bus: str
    """Domain, bus, device and function as the kernel writes them: `0000:41:00.0`."""
    link: Link
    """As it runs now. An idle GPU lowers the generation, never the width."""
    best_link: Link
    """What the card can do."""
    numa_node: int
    """-1 where the firmware does not say."""
    bar_mib: int
    """The largest window into the card's memory, in MiB; 0 if unknown. Resizable BAR makes it cover all."""
    iommu: str
    """The kernel's name of the IOMMU mode: `identity`, `DMA`, `DMA-FQ`; empty without an IOMMU."""
    bridges: tuple[str, ...]
    """The PCI bridges above it, root port first."""


@dataclass(frozen=True)
class Gpu:
    """A GPU as the driver answers for it."""

    index: int
    bus: str
    name: str
    memory_mib: int
    compute_capability: str
    driver: str
    power_limit_watts: float | None
    default_power_limit_watts: float | None
    persistence: bool
    ecc: bool | None
    mig: bool
    link: Link
    best_link: Link
    """What the card and the slot can do together."""


@dataclass(frozen=True)
class Driver:
    """Versions such as `580.82.07`; empty where there is none."""

    loaded: str
    """The kernel module that runs."""
    open_modules: bool
    """Whether that is the open one, which Blackwell requires."""
    installed: str
    """The kernel module that the next boot loads."""
    library: str
    """The user-space library (libnvidia-ml)."""
    nouveau: bool
    """Whether nouveau, which keeps NVIDIA's module out, is loaded."""


@dataclass(frozen=True)
class Xid:
    """An error that the driver wrote into the kernel's log since boot."""

    bus: str
    code: int
    text: str


@dataclass(frozen=True)
class HostFacts:
    """One host, read in one round trip."""

    slots: tuple[Slot, ...]
    gpus: tuple[Gpu, ...]
    complaints: tuple[str, ...]
    """Lines of nvidia-smi that are no GPU: errors, or garbage."""
    answered: bool
    """False if nvidia-smi was still silent when its time was up."""
    driver: Driver
    xids: tuple[Xid, ...]
    p2p: dict[str, dict[str, str]]
    """nvidia-smi's read matrix, `{"GPU0": {"GPU1": "OK"}}`."""
    nvlink: bool
    nvswitches: int
    redirecting_bridges: tuple[str, ...]
    """PCI bridges whose ACS sends peer-to-peer traffic up to the root."""
    secure_boot: bool
    kernel: str
    boot_parameters: tuple[str, ...]
    governors: tuple[str, ...]
    numa_balancing: bool
    numa_nodes: int
    cpus: int
    memory_gib: float
    shm_gib: float
    """Size of /dev/shm."""
    disk_free_gib: float
    """Free where /opt is."""
    locked_memory_kib: int | None
    """The limit `ulimit -l`; None: unlimited."""
    open_files: int | None
    """The limit `ulimit -n`; None: unlimited."""

    @property
    def hardware(self) -> Hardware | None:
        """As one would declare it, but for bandwidths, which cannot be seen; None until a driver answers for GPUs.

        Of GPUs that differ the smallest memory counts.
        """
        if not self.gpus:
            return None if self.slots else Hardware(gpus=0)
        capability = self.gpus[0].compute_capability
        return Hardware(
            gpus=len(self.gpus),
            gpu=self.gpus[0].name,
            memory_mib=min(gpu.memory_mib for gpu in self.gpus),
            compute_capability=capability if re.fullmatch(r"\d+\.\d+", capability) else "",
            link="nvlink" if self.nvlink else "pcie",
            numa_nodes=max(1, len({slot.numa_node for slot in self.slots})),
        )
