"""cuda: the driver, the host settings around it, and a toolkit that is proved to compile for the host's GPUs."""

from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError
from pyinfra.context import host

from inventory import target
from roles.bundle.operations import apt_environment
from roles.cuda import host_settings, packages, toolkit
from roles.cuda.distributions import Distribution, distribution
from roles.cuda.facts import CudaFacts, cuda_facts
from roles.cuda.operations import commands_run, rebooted, toolkit_proved
from roles.cuda.settings import CudaSettings
from roles.files import File, files_absent, files_in_place
from roles.refusal import Refusal
from roles.sglang.release import Release
from roles.sglang.settings import SglangSettings
from roles.templates import render


@deploy("cuda")
def cuda() -> None:
    """Bring driver and toolkit to what the settings ask for, with a reboot only where it is needed and allowed."""
    settings, hardware = CudaSettings.of(host), target(host).hardware
    if hardware is not None and hardware.gpus == 0:
        settings = settings.model_copy(update={"driver": "require"})
    release = Release.of(SglangSettings.of(host).version).directory
    facts = cuda_facts(host, settings, toolkit.home(settings, release), release)
    capability = next(iter(facts.capabilities), "") or (hardware.compute_capability if hardware else "")
    try:
        system = distribution(facts.os_release)
        _refuse(settings, facts)
    except Refusal as refusal:
        raise DeployError(f"host {host.name}: {refusal}") from None
    _repository(settings, facts, system)
    _driver(settings, facts, system, release)
    _toolkit(settings, facts, release, capability or toolkit.REFERENCE_CAPABILITY)


def _refuse(settings: CudaSettings, facts: CudaFacts) -> None:
    """Raise Refusal for what is known to end badly before anything is changed."""
    driver = facts.machine.driver
    if settings.driver == "manage" and facts.machine.secure_boot and not driver.loaded:
        raise Refusal(
            "Secure Boot is on and no NVIDIA module is loaded, expected it off or the module signed: dkms signs with "
            "a key that the firmware does not know, so turn Secure Boot off, or enrol the key at the console "
            "(mokutil --import), install the driver and set `cuda_driver: require`."
        )
    if settings.toolkit == "present" and not facts.toolkit.nvcc:
        raise Refusal(
            f"there is no nvcc in {settings.home}/bin, expected one by `cuda_toolkit: present`: correct `cuda_home`, "
            "or set `cuda_toolkit: pypi`."
        )
    if facts.toolkit.nvcc and facts.toolkit.torch:
        version = None if settings.driver == "manage" else facts.driver_version
        if sentence := toolkit.disagreement(facts.toolkit.nvcc, facts.toolkit.torch, version):
            raise Refusal(sentence)


def _repository(settings: CudaSettings, facts: CudaFacts, system: Distribution) -> None:
    """NVIDIA's apt repository, where something comes from it."""
    if host.data.get("bundle"):  # which has what would come from there
        return
    used = settings.toolkit == "apt" or (settings.driver == "manage" and system.driver_from_nvidia)
    uri = settings.apt_mirror or system.repository
    if settings.apt_key:
        key = File(packages.KEYRING, f"{settings.apt_key.strip()}\n")
        files_in_place(name="Trust the repository's key", files=[key] if used else [], seen=facts.files)
    else:
        trust = packages.trust(uri, facts.installed) if used and not facts.trusts_nvidia else []
        commands_run(name="Trust NVIDIA's key", commands=trust)
    source = File(packages.SOURCE, render("cuda/nvidia.sources.j2", {"uri": uri, "key": packages.KEYRING}, {}))
    files_in_place(name="Add NVIDIA's repository", files=[source] if used else [], seen=facts.files)


def _driver(settings: CudaSettings, facts: CudaFacts, system: Distribution, release: str) -> None:
    """The driver, what the kernel reads beside it, and the reboot that both may need."""
    managed = settings.driver == "manage"
    nvswitch = facts.machine.nvswitches > 0
    names = system.driver_packages(settings.driver_branch, kernel=facts.machine.kernel, nvswitch=nvswitch)
    install = packages.install(names, facts.installed) if managed else []
    commands_run(name="Install the driver", commands=install, _env=apt_environment(host))
    hold = packages.hold(facts.installed, facts.held, installing=bool(install)) if managed else []
    commands_run(name="Hold driver and kernel against upgrades", commands=hold)

    wanted = host_settings.files(settings)
    obsolete = [path for path in host_settings.PATHS if path in facts.files and path not in {f.path for f in wanted}]
    changed = {*obsolete, *(file.path for file in wanted if not facts.has(file))}
    files_in_place(name="Write the host settings", files=wanted, seen=facts.files)
    files_absent(name="Remove host settings that are no longer declared", paths=obsolete)
    commands_run(name="Put the host settings in force", commands=host_settings.effects(settings, facts.live, changed))
    rebooted(
        name="Reboot if the running kernel is not as declared",
        settings=settings,
        release=release,
        expected=bool(install) or bool(host_settings.reboot_reasons(settings, facts.live)),
    )
    persistence = True if managed and settings.persistence is None else settings.persistence
    services = host_settings.service("nvidia-persistenced", persistence, facts.persistenced)
    if managed and nvswitch:
        services += host_settings.service("nvidia-fabricmanager", True, facts.fabricmanager)
    commands_run(name="Keep the driver's services running", commands=services)


def _toolkit(settings: CudaSettings, facts: CudaFacts, release: str, capability: str) -> None:
    """nvcc and all that it needs, proved."""
    version = settings.toolkit_version
    from_apt = settings.toolkit == "apt"
    install = packages.install_toolkit(toolkit.apt_package(version), facts.installed) if from_apt else []
    commands_run(name="Install the toolkit", commands=install, _env=apt_environment(host))
    incomplete = settings.toolkit == "pypi" and not facts.toolkit.whole
    commands_run(
        name="Complete the toolkit of the release",
        commands=[toolkit.complete(release, version)] if incomplete else [],
    )
    toolkit_proved(
        name="Prove that the toolkit compiles for the GPUs",
        settings=settings,
        release=release,
        capability=capability,
        expected=bool(install) or incomplete or facts.toolkit.proved != facts.toolkit.proof(capability),
    )
