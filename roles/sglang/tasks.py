"""sglang: the release that the units run."""

from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError
from pyinfra.context import host

from roles.refusal import Refusal
from roles.serve.settings import ServeSettings
from roles.sglang.facts import sglang_facts
from roles.sglang.operations import release_built
from roles.sglang.release import Release, Uv, check_host
from roles.sglang.settings import SglangSettings


@deploy("sglang")
def sglang() -> None:
    """Install the locked release of SGLang."""
    settings = SglangSettings.of(host)
    release, uv = Release.of(settings.version), Uv.locked()
    seen = sglang_facts(host, release, uv)
    if not seen.release:
        try:
            check_host(host.name, release.version, machine=seen.machine, python=seen.python, free=seen.free)
        except Refusal as refusal:
            raise DeployError(str(refusal)) from None
    release_built(
        name="Install the release",
        release=release,
        uv=uv,
        settings=settings,
        environment=ServeSettings.of(host).environment,
        seen=seen,
    )
