"""Host settings that the role owns, as files. Pure."""

from collections.abc import Mapping, Set
from typing import Final, NamedTuple

from roles.cuda.settings import CudaSettings
from roles.files import File
from roles.templates import render

NOUVEAU: Final = "/etc/modprobe.d/slipway-nouveau.conf"
UVM: Final = "/etc/modprobe.d/slipway-nvidia-uvm.conf"
SYSCTL: Final = "/etc/sysctl.d/90-slipway-cuda.conf"
GRUB: Final = "/etc/default/grub.d/90-slipway.cfg"
POWER_UNIT: Final = "slipway-power-limit.service"
POWER: Final = f"/etc/systemd/system/{POWER_UNIT}"

PATHS: Final = (NOUVEAU, UVM, SYSCTL, GRUB, POWER)
"""All files that the role may own: those not declared are absent."""


class Live(NamedTuple):
    """What is in force now, whatever the files say."""

    loaded_driver: str
    installed_driver: str
    boot_parameters: tuple[str, ...]
    hmm_disabled: bool
    """Only meaningful while nvidia-uvm is loaded."""
    uvm_loaded: bool
    sysctl: Mapping[str, str]
    power_unit_enabled: bool
    """Whether the next boot sets the limit again."""
    power_limits: tuple[float, ...]
    """W, one for each GPU."""
    stale_boot: bool
    """Whether the boot loader's configuration is older than the files that it is made of."""
    stale_initramfs: bool
    """The same for the initial RAM disk and the modules' options."""


def files(settings: CudaSettings) -> list[File]:
    """The files that the settings ask for."""
    wanted = []
    if settings.driver == "manage":
        wanted.append(File(NOUVEAU, render("cuda/nouveau.conf.j2", {}, {})))
    if settings.uvm_disable_hmm:
        wanted.append(File(UVM, render("cuda/nvidia-uvm.conf.j2", {}, {})))
    if settings.sysctl:
        wanted.append(File(SYSCTL, render("cuda/sysctl.conf.j2", {"sysctl": settings.sysctl}, {})))
    if settings.boot_parameters:
        wanted.append(File(GRUB, render("cuda/grub.cfg.j2", {"parameters": settings.boot_parameters}, {})))
    if settings.power_limit_watts is not None:
        wanted.append(File(POWER, render("cuda/power-limit.service.j2", {"watts": settings.power_limit_watts}, {})))
    return wanted


def reboot_reasons(settings: CudaSettings, live: Live) -> list[str]:
    """Why the running kernel is not yet what the settings ask for: each a clause of one sentence."""
    reasons = []
    if settings.driver == "manage" and live.installed_driver and live.installed_driver != live.loaded_driver:
        loaded = live.loaded_driver or "none"
        reasons.append(f"driver {live.installed_driver} is installed, but {loaded} is loaded")
    missing = [parameter for parameter in settings.boot_parameters if parameter not in live.boot_parameters]
    if missing:
        reasons.append(f"the kernel was booted without {' '.join(missing)}")
    if settings.uvm_disable_hmm and live.uvm_loaded and not live.hmm_disabled:
        reasons.append("nvidia-uvm was loaded without uvm_disable_hmm=1")
    return reasons


def effects(settings: CudaSettings, live: Live, changed: Set[str]) -> list[str]:
    """Commands that put the settings in force.

    `changed` are the files that this run writes or removes; what an earlier run wrote and then, interrupted, did
    not put in force is told by what is live.
    """
    owned = {file.path for file in files(settings)}
    commands = []
    if changed & {NOUVEAU, UVM} or (owned & {NOUVEAU, UVM} and live.stale_initramfs):
        commands.append("update-initramfs -u")
    if GRUB in changed or (GRUB in owned and live.stale_boot):
        commands.append("update-grub")
    if any(live.sysctl.get(name, "").split() != str(value).split() for name, value in settings.sysctl.items()):
        commands.append(f"sysctl --quiet --load={SYSCTL}")
    watts = settings.power_limit_watts
    if watts is None and POWER in changed:
        commands += [f"rm -f /etc/systemd/system/multi-user.target.wants/{POWER_UNIT}", "systemctl daemon-reload"]
    elif watts:
        in_force = live.power_unit_enabled and all(abs(limit - watts) < 1 for limit in live.power_limits)
        if POWER in changed or not in_force:
            enable = f"systemctl enable --quiet {POWER_UNIT}"
            commands += ["systemctl daemon-reload", enable, f"systemctl restart {POWER_UNIT}"]
    return commands


def service(name: str, wanted: bool | None, seen: str) -> list[str]:
    """Commands that keep a service running, or stopped; `seen` is what systemd says: `enabled active`."""
    running = seen in ("enabled active", "static active")  # Ubuntu's nvidia-persistenced is started by udev
    stopped = not seen.startswith("enabled") and not seen.endswith(" active")
    if wanted is None or (running if wanted else stopped):
        return []
    return [f"systemctl {'enable' if wanted else 'disable'} --now --quiet {name}"]
