"""What a host was seen to have, against what it should have. Pure.

Each check yields findings; CHECKS is the whole list, in the order of the report. A refusal is what makes the
server fail, hang, or run at a fraction of its speed; a warning is what costs some speed.
"""

from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple

from roles.preflight.hardware import Hardware
from roles.preflight.host_facts import HostFacts

LOWEST_CAPABILITY: Final = (8, 0)

_APPLICATION_XIDS: Final = {13, 31, 43, 45}
"""Xids of a program that went wrong (https://docs.nvidia.com/deploy/xid-errors/): no fault of the host."""

_FATAL_XIDS: Final = {48, 62, 64, 74, 79, 95, 119, 120, 140}
"""Uncorrectable memory, failed row remapping, NVLink, a lost GPU, a GPU's own processor (GSP) that stopped."""

_MEMORY_TOLERANCE: Final = 0.02
"""Drivers of different versions report the same card's memory a little differently."""


class Finding(NamedTuple):
    """One thing that is not as it should be."""

    level: Literal["refusal", "warning"]
    found: str
    expected: str
    remedy: str

    @property
    def sentence(self) -> str:
        return f"{self.found}, expected {self.expected}: {self.remedy}."


class Expectation(NamedTuple):
    """What a host is measured against."""

    hardware: Hardware | None
    """None: not declared, so the host is only checked against itself."""
    minimum_driver: str | None
    """A version such as `580.65`; None: the run itself sees to the driver, so none is needed yet."""


def compare(facts: HostFacts, expected: Expectation) -> tuple[Finding, ...]:
    """All findings, refusals first. A host that is declared to have no GPU has nothing to be checked."""
    if expected.hardware is not None and expected.hardware.gpus == 0:
        return ()
    findings = [finding for check in CHECKS for finding in check(facts, expected)]
    return tuple(sorted(findings, key=lambda finding: finding.level))


def count(facts: HostFacts, expected: Expectation) -> Iterator[Finding]:
    """As many GPUs on the bus as declared, or any at all."""
    declared = expected.hardware.gpus if expected.hardware else None
    if declared is not None and len(facts.slots) != declared:
        yield _refusal(
            f"the PCI bus shows {len(facts.slots)} GPUs",
            str(declared),
            "reseat the missing card and check its power, or correct `hardware.gpus`",
        )
    elif not facts.slots:
        yield _refusal(
            "the PCI bus shows no NVIDIA GPU",
            "at least one",
            "check the cards, or declare `hardware: {gpus: 0}` for a host that serves on its CPU",
        )


def answering(facts: HostFacts, expected: Expectation) -> Iterator[Finding]:
    """Every GPU of the bus answers the driver."""
    if not facts.answered:
        yield _refusal(
            "nvidia-smi does not answer",
            "an answer within a minute",
            "a GPU or the driver hangs, so reboot the host",
        )
        return
    if facts.driver.library not in ("", facts.driver.loaded):
        return  # then none can answer, and `driver` says why
    lost = {slot.bus for slot in facts.slots} - {gpu.bus for gpu in facts.gpus}
    if lost and facts.driver.loaded:
        said = f" (nvidia-smi says: {facts.complaints[0][:120]})" if facts.complaints else ""
        yield _refusal(
            f"of {len(facts.slots)} GPUs {_names(sorted(lost))} does not answer the driver{said}",
            "all to answer",
            "power-cycle the host, since a GPU that fell off the bus is not brought back by a reset, and change "
            "the card if it happens again"
            if facts.gpus
            else "look for NVRM in the kernel's log, and mind that Blackwell needs the open kernel modules",
        )


def driver(facts: HostFacts, expected: Expectation) -> Iterator[Finding]:
    """A driver that is loaded, new enough, and of one version with its library."""
    if expected.minimum_driver is None:
        return
    seen, wanted = facts.driver, f"{expected.minimum_driver} or newer"
    if not seen.loaded:
        yield _refusal(
            "nouveau is loaded in place of NVIDIA's driver" if seen.nouveau else "no NVIDIA driver is loaded",
            wanted,
            f"enrol the key that driver {seen.installed} is signed with, or turn Secure Boot off"
            if seen.installed and facts.secure_boot
            else "set `cuda_driver: manage`, or install the open modules yourself",
        )
        return
    if version(seen.loaded) < version(expected.minimum_driver):
        yield _refusal(
            f"driver {seen.loaded} is loaded",
            wanted,
            "set `cuda_driver: manage`, or install a newer one yourself",
        )
    if seen.library and seen.library != seen.loaded:
        yield _refusal(
            f"kernel module {seen.loaded} runs beside library {seen.library}",
            "one version",
            "reboot the host, since an upgrade replaced the driver under the running module",
        )


def cards(facts: HostFacts, expected: Expectation) -> Iterator[Finding]:
    """The declared card, and one that SGLang's kernels can run on."""
    declared = expected.hardware or Hardware(gpus=len(facts.gpus))
    for gpu in facts.gpus:
        remedy = "change the card or correct `hardware.{}`"
        if declared.gpu not in ("", gpu.name):
            yield _refusal(f"GPU {gpu.index} is {gpu.name}", declared.gpu, remedy.format("gpu"))
        if declared.memory_mib and abs(gpu.memory_mib / declared.memory_mib - 1) > _MEMORY_TOLERANCE:
            found, wanted = f"GPU {gpu.index} has {gpu.memory_mib} MiB", f"{declared.memory_mib} MiB"
            yield _refusal(found, wanted, remedy.format("memory_mib"))
        capability = f"GPU {gpu.index} has compute capability {gpu.compute_capability}"
        if declared.compute_capability not in ("", gpu.compute_capability):
            yield _refusal(capability, declared.compute_capability, remedy.format("compute_capability"))
        elif version(gpu.compute_capability) < LOWEST_CAPABILITY:
            yield _refusal(capability, "8.0 or higher", "use an Ampere card or a newer one")


def links(facts: HostFacts, expected: Expectation) -> Iterator[Finding]:
    """All lanes, and the declared generation at best: an idle GPU lowers its generation by itself."""
    generation = expected.hardware.pcie_generation if expected.hardware else 0
    width = expected.hardware.pcie_width if expected.hardware else 0
    limits = {gpu.bus: gpu.best_link for gpu in facts.gpus}
    for slot in facts.slots:
        wanted = width or slot.best_link.width
        if 0 < slot.link.width < wanted:
            yield _refusal(
                f"GPU {slot.bus} runs on {slot.link.width} PCIe lanes",
                str(wanted),
                "reseat the card and its riser, check the slot's bifurcation in the firmware, or declare "
                "`hardware.pcie_width`",
            )
        best = limits.get(slot.bus, slot.best_link).generation
        if 0 < best < generation:
            yield _refusal(
                f"GPU {slot.bus} reaches PCIe Gen{best} at best",
                f"Gen{generation}",
                "set the slot's speed in the firmware, or correct `hardware.pcie_generation`",
            )


def mig(facts: HostFacts, expected: Expectation) -> Iterator[Finding]:
    """MIG off: a partition has neither the memory nor the peers of a whole GPU."""
    for gpu in facts.gpus:
        if gpu.mig:
            remedy = f"run `nvidia-smi -i {gpu.index} -mig 0` with nothing using the GPU"
            yield _refusal(f"GPU {gpu.index} has MIG on", "off", remedy)


def xids(facts: HostFacts, expected: Expectation) -> Iterator[Finding]:
    """No hardware error since boot; each code of each GPU is told once."""
    last = {(xid.bus, xid.code): xid for xid in facts.xids if xid.code not in _APPLICATION_XIDS}
    for xid in last.values():
        found = f"GPU {xid.bus} reported Xid {xid.code} since boot ({xid.text[:100] or 'no text'})"
        if xid.code in _FATAL_XIDS:
            yield _refusal(found, "none", "reboot the host, and have the card changed if it comes again")
        else:
            yield _warning(found, "none", "look it up in NVIDIA's list of Xid errors and watch the card")


def peers(facts: HostFacts, expected: Expectation) -> Iterator[Finding]:
    """The declared kind of link, and GPUs that read each other's memory."""
    if expected.hardware and expected.hardware.link == "nvlink" and facts.gpus and not facts.nvlink:
        yield _refusal(
            "nvidia-smi shows no NVLink between the GPUs",
            "it, by `hardware.link`",
            "check nvidia-fabricmanager on a host with NVSwitch, or declare `link: pcie`",
        )
    cells = [(row, column, cell) for row, line in facts.p2p.items() for column, cell in line.items()]
    apart = [(row, column, cell) for row, column, cell in cells if row < column and cell != "OK"]
    if apart:
        yield _warning(
            f"{len(apart)} pairs of GPUs cannot read each other's memory ({'-'.join(apart[0][:2])}: {apart[0][2]})",
            "OK for all",
            "turn ACS and IOMMU translation off and Resizable BAR on, since all-reduce goes through the CPU's "
            "memory until then",
        )


def bridges(facts: HostFacts, expected: Expectation) -> Iterator[Finding]:
    """ACS off on the way between GPUs, as NVIDIA's NCCL troubleshooting asks."""
    above = {bridge for slot in facts.slots for bridge in slot.bridges}
    redirecting = sorted(above & set(facts.redirecting_bridges))
    if redirecting and len(facts.slots) > 1:
        yield _warning(
            f"ACS redirects peer traffic on {_names(redirecting)} above the GPUs",
            "it off",
            "turn ACS off in the firmware, else all-reduce may hang or crawl",
        )


def iommu(facts: HostFacts, expected: Expectation) -> Iterator[Finding]:
    """No address translation between GPUs."""
    translated = [slot.bus for slot in facts.slots if slot.iommu.startswith("DMA")]
    if len(translated) > 1:
        yield _warning(
            f"the IOMMU translates for {_names(translated)}",
            "identity mode or none",
            "boot with `iommu=pt` (`cuda_boot_parameters`), else peer traffic may hang",
        )


def windows(facts: HostFacts, expected: Expectation) -> Iterator[Finding]:
    """Resizable BAR: the window covers the card's memory."""
    memory = {gpu.bus: gpu.memory_mib for gpu in facts.gpus}
    small = [slot for slot in facts.slots if 0 < slot.bar_mib < memory.get(slot.bus, 0)]
    if small:
        yield _warning(
            f"{_names([slot.bus for slot in small])} shows {small[0].bar_mib} MiB of its memory on the bus",
            "all of it",
            "turn on Resizable BAR and Above 4G Decoding in the firmware",
        )


def nodes(facts: HostFacts, expected: Expectation) -> Iterator[Finding]:
    """GPUs on the declared number of NUMA nodes."""
    found = {slot.numa_node for slot in facts.slots if slot.numa_node >= 0}
    hardware = expected.hardware
    if hardware and "numa_nodes" in hardware.model_fields_set and found and len(found) != hardware.numa_nodes:
        yield _warning(
            f"the GPUs are on {len(found)} NUMA nodes",
            str(hardware.numa_nodes),
            "check NPS or sub-NUMA clustering in the firmware, or correct `hardware.numa_nodes`",
        )


def power(facts: HostFacts, expected: Expectation) -> Iterator[Finding]:
    """One power limit for all, since the slowest GPU sets the pace; persistence mode on."""
    limits = sorted({gpu.power_limit_watts for gpu in facts.gpus if gpu.power_limit_watts is not None})
    if len(limits) > 1:
        found = f"the GPUs' power limits range from {limits[0]:.0f} to {limits[-1]:.0f} W"
        yield _warning(found, "one for all", "set `cuda_power_limit_watts`")
    if lazy := sum(not gpu.persistence for gpu in facts.gpus):
        remedy = "set `cuda_persistence: true`, else each first use initialises the GPU anew"
        yield _warning(f"persistence mode is off on {lazy} GPUs", "on", remedy)


def processor(facts: HostFacts, expected: Expectation) -> Iterator[Finding]:
    """CPU frequency and memory placement that do not disturb the ranks."""
    if slow := [governor for governor in facts.governors if governor != "performance"]:
        remedy = "run `cpupower frequency-set -g performance`, else kernels are launched late"
        yield _warning(f"CPU governor {slow[0]} is in use", "performance", remedy)
    if facts.numa_balancing and facts.numa_nodes > 1:
        remedy = "set `cuda_sysctl: {kernel.numa_balancing: 0}`, else it moves the ranks' memory about"
        yield _warning("automatic NUMA balancing is on", "off", remedy)


def shared_memory(facts: HostFacts, expected: Expectation) -> Iterator[Finding]:
    """Room in /dev/shm for the buffers between ranks."""
    if 0 < facts.shm_gib < 1:
        remedy = "mount it larger, since NCCL and the ranks exchange data there"
        yield _warning(f"/dev/shm holds {facts.shm_gib} GiB", "1 GiB or more", remedy)


CHECKS: Final[tuple[Callable[[HostFacts, Expectation], Iterator[Finding]], ...]] = (
    count,
    answering,
    driver,
    cards,
    links,
    mig,
    xids,
    peers,
    bridges,
    iommu,
    windows,
    nodes,
    power,
    processor,
    shared_memory,
)


def version(text: str) -> tuple[int, ...]:
    """`580.65.06` as numbers, to be compared."""
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def _refusal(found: str, expected: str, remedy: str) -> Finding:
    return Finding("refusal", found, expected, remedy)


def _warning(found: str, expected: str, remedy: str) -> Finding:
    return Finding("warning", found, expected, remedy)


def _names(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
