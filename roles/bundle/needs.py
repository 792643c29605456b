"""What the hosts of an inventory need from a network."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from pyinfra.api.host import Host

from inventory import Target, target
from roles.base.layout import PACKAGES
from roles.base.settings import BaseSettings
from roles.cuda.distributions import Distribution
from roles.cuda.settings import CudaSettings
from roles.cuda.toolkit import apt_package
from roles.flash_attn.settings import FlashAttnSettings
from roles.front.layout import PACKAGES as FRONT_PACKAGES
from roles.front.settings import FrontSettings
from roles.sglang.release import Release
from roles.sglang.settings import SglangSettings
from roles.weights.model import Model


@dataclass
class Needs:
    """Of all hosts together."""

    releases: set[Release] = field(default_factory=set)
    flash_attn: set[str] = field(default_factory=set)
    """Names of the locks of what is built, or what installs it."""
    packages: set[str] = field(default_factory=set)
    driver_branches: set[int] = field(default_factory=set)
    models: dict[str, Model] = field(default_factory=dict)
    """By name, those that are a commit of a repository."""


def needs_of(hosts: Iterable[Host], distribution: Distribution) -> Needs:
    """Read from their settings; `distribution` names its packages as they do."""
    needs = Needs()
    for host in hosts:
        wish = target(host)
        needs.releases.add(Release.of(SglangSettings.of(host).version))
        needs.packages |= {*PACKAGES, *BaseSettings.of(host).packages}
        if FrontSettings.of(host).enabled:
            needs.packages |= set(FRONT_PACKAGES)
        if wish.hardware is None or wish.has_gpus:
            _for_gpus(host, distribution, needs)
        for model in _models(wish):
            if model.source.rsync:
                needs.packages.add("rsync")
            if model.source.repository and model.source.revision:
                needs.models[model.name] = model
    return needs


def _for_gpus(host: Host, distribution: Distribution, needs: Needs) -> None:
    cuda, flash_attn = CudaSettings.of(host), FlashAttnSettings.of(host)
    if cuda.driver == "manage":
        # Of its own kernel's headers, which only the host knows, the distribution's newest stand in.
        kernel = {"debian": "amd64", "ubuntu": "generic"}[distribution.id]
        needs.packages |= {*distribution.driver_packages(cuda.driver_branch, kernel=kernel, nvswitch=True)}
        needs.driver_branches.add(cuda.driver_branch)
    if cuda.toolkit == "apt":
        needs.packages.add(apt_package(cuda.toolkit_version))
    if flash_attn.attn in (None, "build"):
        needs.flash_attn.add(flash_attn.attn_version)
    if flash_attn.attn != "off":
        needs.flash_attn.add("tools")


def _models(wish: Target) -> list[Model]:
    names = wish.variables.profiles or ([wish.wanted] if wish.wanted in wish.profiles else [])
    profiles = [wish.profiles[name] for name in names]
    return [wish.models[name] for profile in profiles for name in (profile.model, profile.draft) if name]
