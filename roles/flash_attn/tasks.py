"""flash_attn: flash-attn 2 in the release, proved for the host's GPUs, beside an untouched flash-attn 4."""

import json
from collections.abc import Sequence

from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError
from pyinfra.context import host

from inventory import target
from roles.bundle.bundle import Bundle
from roles.bundle.operations import wanted_bundle
from roles.cuda.settings import CudaSettings
from roles.cuda.toolkit import home
from roles.flash_attn.facts import flash_attn_facts
from roles.flash_attn.operations import installed, removed
from roles.flash_attn.settings import FlashAttnSettings
from roles.flash_attn.wheels import architecture, lock_of
from roles.refusal import Refusal
from roles.sglang.release import Release, Uv
from roles.sglang.settings import SglangSettings


@deploy("flash_attn")
def flash_attn() -> None:
    """Build or fetch flash-attn 2, prove it, and add it to the release; or take it out."""
    settings, sglang = FlashAttnSettings.of(host), SglangSettings.of(host)
    release = Release.of(sglang.version).directory
    cuda_home = home(CudaSettings.of(host), release)
    facts = flash_attn_facts(host, release, cuda_home)
    hardware = target(host).hardware
    capability = facts.capability or (hardware.compute_capability if hardware else "")
    wanted = settings.attn or ("build" if capability else "off")
    if wanted == "off":
        uv = f"{Uv.locked().directory}/bin/uv"
        removed(name="Take flash-attn out of the release", release=release, uv=uv, seen=facts.record)
        return
    compiled = architecture(capability) if capability else None
    if compiled is None:
        raise DeployError(
            f"host {host.name}: flash-attn has no code for compute capability {capability or 'unknown'}, expected "
            "8.x, 9.x, 10.x or 12.x: set `flash_attn: off`, as SGLang does not need it, or declare "
            "`hardware.compute_capability`."
        )
    source = settings.attn_wheel_sha256 if wanted == "wheel" else settings.attn_version
    record = json.dumps({wanted: source, "architecture": compiled})
    installed(
        name="Install flash-attn and prove it",
        settings=settings,
        release=release,
        cuda_home=cuda_home,
        architecture=compiled,
        record=record,
        seen=facts.record,
        environment=sglang.installer_environment,
        bundle=_bundle(["tools", settings.attn_version] if wanted == "build" else ["tools"])
        if facts.record != record
        else None,
    )


def _bundle(locks: Sequence[str]) -> Bundle | None:
    """What the files of these locks come from on a host without a network."""
    try:
        bundle = wanted_bundle(host)
        if bundle:
            bundle.check(flash_attn=[lock_of(name) for name in locks])
    except Refusal as refusal:
        raise DeployError(str(refusal)) from None
    return bundle
