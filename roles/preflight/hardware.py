"""`hardware`: what a host is declared to have. Pure."""

from typing import Literal

from pydantic import Field

from roles.documents import Document


class Hardware(Document):
    """The group variable `hardware`. With it, plans can be made for a host that does not exist yet."""

    gpus: int = Field(ge=0)
    """Number of GPUs."""
    gpu: str = ""
    """Name as nvidia-smi prints it, e.g. `NVIDIA RTX PRO 6000 Blackwell Server Edition`."""
    memory_mib: int = Field(default=0, ge=0)
    """Memory of one GPU in MiB, as nvidia-smi prints it."""
    compute_capability: str = Field(default="", pattern=r"^(\d+\.\d+)?$")
    """E.g. "12.0"; decides which kernels can run."""
    link: Literal["pcie", "nvlink"] = "pcie"
    """How GPUs reach each other."""
    memory_bandwidth_gb_s: float = Field(default=0, ge=0)
    """Memory bandwidth of one GPU in GB/s, for the ceilings."""
    link_bandwidth_gb_s: float = Field(default=0, ge=0)
    """Bandwidth between two GPUs in one direction in GB/s, for the ceilings."""
    all_reduce_us: float = Field(default=0, ge=0)
    """Time of a small all-reduce (some KiB) over all GPUs in microseconds, for the ceilings."""
    numa_nodes: int = Field(default=1, ge=1)
    """Number of NUMA nodes that the GPUs are spread over."""
    pcie_generation: int = Field(default=0, ge=0, le=7)
    """PCIe generation of the slots; 0: not checked."""
    pcie_width: int = Field(default=0, ge=0, le=16)
    """Lanes of each GPU; 0: as many as the card has."""
