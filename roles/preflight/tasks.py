"""preflight: a host is checked before it is touched, and its GPUs before a server needs them."""

from pyinfra import logger
from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError
from pyinfra.api.host import Host
from pyinfra.context import host

from inventory import found, target
from roles.cuda.settings import CudaSettings
from roles.preflight.checks import Expectation, compare
from roles.preflight.exchange import Exchange
from roles.preflight.facts import gpu_use, read
from roles.preflight.operations import collective_checked
from roles.preflight.report import Examination
from roles.serve.settings import ServeSettings
from roles.sglang.release import Release
from roles.sglang.settings import SglangSettings


@deploy("preflight")
def preflight() -> None:
    """Warn of what costs speed; end the run before its first change on what cannot work."""
    examined = examine(host)
    for warning in examined.warnings:
        host.log(warning, logger.warning)
    if examined.refusals:
        raise DeployError("\n".join(f"host {host.name}: {refusal}" for refusal in examined.refusals))


def examine(host: Host) -> Examination:
    """Look at the host, in one round trip, and compare. What it has stands in for `hardware` that nobody declared."""
    cuda = CudaSettings.of(host)
    facts = read(host)
    if facts.hardware is not None:
        found(host, facts.hardware)
    minimum = cuda.minimum_driver if cuda.driver == "require" else None
    return Examination(facts, compare(facts, Expectation(target(host).variables.hardware, minimum)))


@deploy("collective")
def collective() -> None:
    """Let the wanted profile's GPUs exchange known values in its environment, before a server relies on them."""
    wanted = target(host)
    profile, hardware = wanted.profiles.get(wanted.wanted), wanted.hardware
    if profile is None or (hardware is not None and hardware.gpus < 2):
        return
    seen = gpu_use(host)
    count = hardware.gpus if hardware is not None else seen.gpus
    gpus = tuple(range(count)) if profile.gpus == "all" else profile.gpus
    exchange = Exchange(
        release=Release.of(SglangSettings.of(host).version).directory,
        ranks=len(gpus),
        environment={
            **ServeSettings.of(host).environment,
            **profile.environment,
            "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)),
        },
    )
    if len(gpus) < 2 or (seen.busy and seen.proof != exchange.identity(seen.driver)):
        if seen.busy:
            host.log(
                "the GPUs are in use, so their exchange is checked by a run that finds them free", logger.warning
            )
        return
    collective_checked(name="Check that the GPUs exchange right values", exchange=exchange, seen=seen)
