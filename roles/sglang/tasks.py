"""sglang: the release that the units run."""

from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError
from pyinfra.context import host

from roles.bundle.bundle import FLASH_ATTN, WHEELS
from roles.bundle.operations import wanted_bundle
from roles.refusal import Refusal
from roles.serve.settings import ServeSettings
from roles.sglang.facts import sglang_facts
from roles.sglang.operations import release_built
from roles.sglang.release import Release, Uv, check_host, minor
from roles.sglang.settings import SglangSettings


@deploy("sglang")
def sglang() -> None:
    """Install the locked release of SGLang."""
    settings = SglangSettings.of(host)
    release, uv = Release.of(settings.version), Uv.locked()
    seen = sglang_facts(host, release, uv)
    try:
        bundle = wanted_bundle(host)
        if not seen.release:
            copied = bundle.bytes(WHEELS) + bundle.bytes(FLASH_ATTN) if bundle else 0
            check_host(
                host.name, release.version, machine=seen.machine, python=seen.python, free=seen.free, copied=copied
            )
        if bundle and not (seen.release and seen.uv):
            bundle.check(python=seen.python and minor(seen.python), lock=release.sha256)
    except Refusal as refusal:
        raise DeployError(str(refusal)) from None
    release_built(
        name="Install the release",
        release=release,
        uv=uv,
        settings=settings,
        bundle=bundle,
        environment=ServeSettings.of(host).environment,
        seen=seen,
    )
