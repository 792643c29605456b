"""Variables of the role cuda."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints, ValidationInfo, field_validator

from roles.cuda.versions import MINIMUM_DRIVER, TOOLKITS, major
from roles.settings import RoleSettings

OneLine = Annotated[str, StringConstraints(pattern=r"^[^\n]*$")]


class CudaSettings(RoleSettings):
    """The NVIDIA driver, the host settings around it, and the CUDA toolkit."""

    prefix: ClassVar[str] = "cuda_"

    toolkit: Literal["pypi", "apt", "present"] = "pypi"
    """Where nvcc comes from: NVIDIA's packages on PyPI, its apt repository, or `cuda_home` as it is."""
    toolkit_version: str = Field(default="13.0.3", pattern=r"^\d+\.\d+(\.\d+)?$")
    """Version of the toolkit, in quotes; its major version must be the one that the release's torch is built for."""
    home: str = Field(default="", validate_default=True, pattern=r"^(/[^\s'\"]*)?$")
    """With `cuda_toolkit: present`, the toolkit's directory, e.g. /usr/local/cuda-13.0."""
    apt_mirror: str = Field(default="", pattern=r"^((https?|file)://[^\s'\"]+)?$")
    """URL to use in place of NVIDIA's apt repository for this distribution; empty: NVIDIA's own."""
    apt_key: str = ""
    """ASCII-armoured public key that `cuda_apt_mirror` is signed with; empty: NVIDIA's."""
    driver: Literal["manage", "require"] = "require"
    """`manage` installs the open-module driver of `cuda_driver_branch` and keeps it; `require` only checks."""
    driver_branch: int = Field(default=580, ge=525)
    """Branch of the driver that `manage` installs; 580 is the first for CUDA 13 and NVIDIA's long-term one."""
    reboot: Literal["allow", "refuse"] = "refuse"
    """Whether a run may reboot the host, when the loaded driver or boot parameters are not the wanted ones."""
    persistence: bool | None = None
    """Whether nvidia-persistenced keeps the GPUs initialised; unset: only seen to with `cuda_driver: manage`."""
    power_limit_watts: int | None = Field(default=None, gt=0)
    """Power limit of every GPU in W; unset: left alone."""
    uvm_disable_hmm: bool = False
    """Turn off nvidia-uvm's heterogeneous memory management, which has hung multi-GPU hosts on PCIe."""
    sysctl: dict[
        Annotated[str, StringConstraints(pattern=r"^[\w./-]+$")],
        int | Annotated[str, StringConstraints(pattern=r"^[^\n]*$")],
    ] = Field(default_factory=dict)
    """Kernel settings to own, e.g. {kernel.numa_balancing: 0, vm.swappiness: 0}."""
    boot_parameters: tuple[str, ...] = ()
    """Kernel boot parameters to add, e.g. [iommu=pt]; needs a reboot, by the rule of `cuda_reboot`."""

    @field_validator("toolkit_version")
    @classmethod
    def _is_known(cls, version: str, info: ValidationInfo) -> str:
        if major(version) not in MINIMUM_DRIVER:
            raise ValueError(f"must be of CUDA {' or '.join(MINIMUM_DRIVER)}, not {version}")
        if info.data.get("toolkit") == "pypi" and version not in TOOLKITS:
            raise ValueError(f"with cuda_toolkit: pypi it must be what the lock holds, {', '.join(TOOLKITS)}")
        return version

    @field_validator("home")
    @classmethod
    def _is_given(cls, home: str, info: ValidationInfo) -> str:
        if info.data.get("toolkit") == "present" and not home:
            raise ValueError("with cuda_toolkit: present it must name the toolkit's directory")
        return home

    @field_validator("driver_branch")
    @classmethod
    def _runs_the_toolkit(cls, branch: int, info: ValidationInfo) -> int:
        version = info.data.get("toolkit_version", "")
        oldest = MINIMUM_DRIVER.get(major(version), "")
        if info.data.get("driver") == "manage" and oldest and branch < int(major(oldest)):
            raise ValueError(f"must be {major(oldest)} or newer for CUDA {version}, not {branch}")
        return branch

    @field_validator("boot_parameters")
    @classmethod
    def _are_words(cls, parameters: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := [parameter for parameter in parameters if not re.fullmatch(r"[\w.,:=/-]+", parameter)]:
            raise ValueError(f"a boot parameter is one word of letters, digits and . , : = / - , not {wrong[0]!r}")
        return parameters

    @property
    def minimum_driver(self) -> str:
        """The oldest driver that runs what the toolkit makes."""
        return MINIMUM_DRIVER[major(self.toolkit_version)]
