"""preflight: a host is checked before it is touched."""

from pyinfra import logger
from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError
from pyinfra.api.host import Host
from pyinfra.context import host

from inventory import target
from roles.cuda.settings import CudaSettings
from roles.preflight.checks import Expectation, compare
from roles.preflight.facts import read
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
    """Look at the host, in one round trip, and compare."""
    cuda = CudaSettings.of(host)
    facts = read(host)
    minimum = cuda.minimum_driver if cuda.driver == "require" else None
    return Examination(facts, compare(facts, Expectation(target(host).hardware, minimum)))
