"""The texts that a host answers with -> HostFacts. Pure; what cannot be read becomes a complaint."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from roles.preflight.host_facts import Driver, Gpu, HostFacts, Link, Slot, Xid

GPU_QUERY: Final = (
    "index",
    "pci.bus_id",
    "name",
    "memory.total",
    "compute_cap",
    "driver_version",
    "power.limit",
    "power.default_limit",
    "persistence_mode",
    "ecc.mode.current",
    "mig.mode.current",
    "pcie.link.gen.current",
    "pcie.link.width.current",
    "pcie.link.gen.max",
    "pcie.link.width.max",
)
"""What nvidia-smi is asked for each GPU; `nvidia-smi --help-query-gpu` describes them."""

NO_ANSWER: Final = "== no answer"
P2P_MARK: Final = "== p2p"
TOPOLOGY_MARK: Final = "== topology"

_GENERATIONS: Final = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
"""GT/s of a lane -> PCIe generation."""

_BUS: Final = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
_ESCAPE: Final = re.compile(r"\x1b\[[0-9;]*m")
_NVLINK: Final = re.compile(r"NV\d+")
_NVRM: Final = re.compile(r"NVRM version: NVIDIA UNIX (?P<flavour>.*?) +(?P<version>\d+\.\d[\d.]*) ")
_LIBRARY: Final = re.compile(r"libnvidia-ml\.so\.(\d+\.\d[\d.]*)$")
_XID: Final = re.compile(r"NVRM: Xid \(PCI:(?P<bus>[0-9a-fA-F:.]+)\): (?P<code>\d+)(?:, *(?P<text>.*))?")


def host_facts(seen: Mapping[str, Sequence[str]]) -> HostFacts:
    """All facts from the programs' lines; a program that said nothing leaves its facts empty."""
    answers, p2p, topology = _sections(seen.get("nvidia-smi", ()))
    gpus = [gpu(line) for line in answers]
    host = _pairs(seen.get("host", ()))
    return HostFacts(
        gpus=tuple(found for found in gpus if found),
        complaints=tuple(
            line.strip() for line, found in zip(answers, gpus, strict=True) if not found and line.strip()
        ),
        answered=NO_ANSWER not in seen.get("nvidia-smi", ()),
        slots=tuple(slot(line) for line in seen.get("pci", ()) if "|0x03" in line),
        nvswitches=sum("|0x0680" in line for line in seen.get("pci", ())),
        driver=driver(_pairs(seen.get("driver", ()))),
        xids=tuple(xid(line) for line in seen.get("xids", ()) if _XID.search(line)),
        p2p=matrix(p2p),
        nvlink=any(_NVLINK.fullmatch(cell) for row in matrix(topology).values() for cell in row.values()),
        redirecting_bridges=tuple(line.strip() for line in seen.get("acs", ()) if _BUS.fullmatch(line.strip())),
        secure_boot=host.get("secure_boot") == "1",
        kernel=host.get("kernel", ""),
        boot_parameters=tuple(host.get("boot_parameters", "").split()),
        governors=tuple(host.get("governors", "").split()),
        numa_balancing=host.get("numa_balancing", "0") not in ("", "0"),
        numa_nodes=_number(host.get("numa_nodes", "")),
        cpus=_number(host.get("cpus", "")),
        memory_gib=_gib(host.get("memory_kib", "")),
        shm_gib=_gib(host.get("shm_kib", "")),
        disk_free_gib=_gib(host.get("disk_free_kib", "")),
        locked_memory_kib=_limit(host.get("locked_memory_kib", "")),
        open_files=_limit(host.get("open_files", "")),
    )


def gpu(line: str) -> Gpu | None:
    """One line of `nvidia-smi --query-gpu`, or None if it is something else."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(GPU_QUERY):
        return None
    cell = dict(zip(GPU_QUERY, cells, strict=True))
    if not (cell["index"].isdigit() and cell["memory.total"].isdigit() and _BUS.fullmatch(cell["pci.bus_id"])):
        return None
    return Gpu(
        index=int(cell["index"]),
        bus=bus(cell["pci.bus_id"]),
        name=cell["name"],
        memory_mib=int(cell["memory.total"]),
        compute_capability=cell["compute_cap"],
        driver=cell["driver_version"],
        power_limit_watts=_watts(cell["power.limit"]),
        default_power_limit_watts=_watts(cell["power.default_limit"]),
        persistence=cell["persistence_mode"] == "Enabled",
        ecc={"Enabled": True, "Disabled": False}.get(cell["ecc.mode.current"]),
        mig=cell["mig.mode.current"] == "Enabled",
        link=Link(_number(cell["pcie.link.gen.current"]), _number(cell["pcie.link.width.current"])),
        best_link=Link(_number(cell["pcie.link.gen.max"]), _number(cell["pcie.link.width.max"])),
    )


def slot(line: str) -> Slot:
    """One line of the program `pci`: path | class | link now | at best | node | IOMMU | windows."""
    path, _, speed, width, best_speed, best_width, node, iommu, windows = (line.split("|") + [""] * 9)[:9]
    *bridges, own = _BUS.findall(path)
    return Slot(
        bus=own,
        link=_link(speed, width),
        best_link=_link(best_speed, best_width),
        numa_node=int(node) if node.lstrip("-").isdigit() else -1,
        bar_mib=max((_window(window) for window in windows.split(";")), default=0) >> 20,
        iommu=iommu,
        bridges=tuple(bridges),
    )


def driver(pairs: Mapping[str, str]) -> Driver:
    """The versions that the program `driver` prints."""
    loaded = _NVRM.search(pairs.get("loaded", ""))
    library = _LIBRARY.search(pairs.get("library", ""))
    return Driver(
        loaded=loaded["version"] if loaded else "",
        open_modules=bool(loaded and "Open" in loaded["flavour"]),
        installed=pairs.get("installed", ""),
        library=library[1] if library else "",
        nouveau="nouveau" in pairs,
    )


def xid(line: str) -> Xid:
    """`NVRM: Xid (PCI:0000:41:00): 79, pid=…, GPU has fallen off the bus.`"""
    found = _XID.search(line)
    assert found, line
    return Xid(bus(found["bus"]), int(found["code"]), (found["text"] or "").strip())


def matrix(lines: Sequence[str]) -> dict[str, dict[str, str]]:
    """The table of `nvidia-smi topo`, as row -> column -> cell, GPUs only."""
    rows = [_ESCAPE.sub("", line).split("\t") for line in lines]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    header = next((row for row in cells if row and row[0] == "GPU0" and "X" not in row), [])
    columns = [name for name in header if re.fullmatch(r"GPU\d+", name)]
    return {
        row[0]: dict(zip(columns, row[1:], strict=False))
        for row in cells
        if row and row[0] in columns and row is not header
    }


def bus(address: str) -> str:
    """nvidia-smi's `00000000:41:00.0` and the log's `0000:41:00` as the kernel writes it: `0000:41:00.0`."""
    domain, rest = address.lower().split(":", 1)
    return f"{domain[-4:]}:{rest}" if "." in rest else f"{domain[-4:]}:{rest}.0"


def _sections(lines: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    sections: dict[str, list[str]] = {"": [], P2P_MARK: [], TOPOLOGY_MARK: []}
    current = sections[""]
    for line in lines:
        if line in sections:
            current = sections[line]
        elif line != NO_ANSWER:
            current.append(line)
    return sections[""], sections[P2P_MARK], sections[TOPOLOGY_MARK]


def _pairs(lines: Sequence[str]) -> dict[str, str]:
    return {name: value.strip() for name, found, value in (line.partition("=") for line in lines) if found}


def _link(speed: str, width: str) -> Link:
    lanes = _number(width)
    # A device that left the bus reads as all ones: 63 lanes.
    return Link(_GENERATIONS.get(speed.split(" ")[0], 0), 0 if lanes == 63 else lanes)


def _window(line: str) -> int:
    """Bytes of one line of sysfs' `resource`: start, end, flags."""
    cells = line.split()
    return int(cells[1], 16) - int(cells[0], 16) + 1 if len(cells) == 3 and cells[1] != cells[0] else 0


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _watts(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else None


def _gib(kib: str) -> float:
    return round(_number(kib) / 2**20, 1)


def _limit(text: str) -> int | None:
    return None if text == "unlimited" else _number(text)
