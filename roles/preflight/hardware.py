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
    memory_mib: int = Field(0, ge=0)
    """Memory of one GPU in MiB, as nvidia-smi prints it."""
    compute_capability: str = Field("", pattern=r"^(\d+\.\d+)?$")
    """E.g. "12.0"; decides which kernels can run."""
    link: Literal["pcie", "nvlink"] = "pcie"
    """How GPUs reach each other."""
    memory_bandwidth_gb_s: float = Field(0, ge=0)
    """Memory bandwidth of one GPU in GB/s, for the ceilings."""
    link_bandwidth_gb_s: float = Field(0, ge=0)
    """Bandwidth between two GPUs in one direction in GB/s, for the ceilings."""
    numa_nodes: int = Field(1, ge=1)
