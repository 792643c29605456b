"""preflight: a host is checked before it is touched, and its GPUs before a server needs them."""

from pyinfra import logger
from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError
from pyinfra.api.host import Host
from pyinfra.context import host

from inventory import found, target
from roles.cuda.settings import CudaSettings
from roles.preflight.checks import Expectation, compare
from roles.preflight.facts import gpu_use, read
from roles.preflight.operations import collective_checked, exchange_on
from roles.preflight.report import Examination


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
    """Let the wanted profiles' GPUs exchange known values in their environment, before a server relies on them."""
    wish = target(host)
    profiles = [wish.profiles.get(name) for name in wish.variables.profiles or (wish.wanted,)]
    exchanges = [exchange for profile in profiles if profile and (exchange := exchange_on(host, profile))]
    if not exchanges:
        return
    seen = gpu_use(host)
    if seen.busy and not all(map(seen.proves, exchanges)):
        host.log("the GPUs are in use, so the next switch checks their exchange, between the servers", logger.warning)
    collective_checked(name="Check that the GPUs exchange right values", exchanges=exchanges, seen=seen)
