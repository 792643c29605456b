"""What the preflight does beyond looking: it lets the GPUs exchange values."""

import shlex
from collections.abc import Generator, Iterable

from pyinfra import logger
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from inventory import target
from roles.files import File, write
from roles.preflight.exchange import PROGRAM, PROOF, SECONDS, SOURCE, Exchange, exchange_of, report
from roles.preflight.facts import GpuUse, gpu_use
from roles.remote import RemoteError, attempt, run
from roles.serve.profile import Profile
from roles.serve.settings import ServeSettings
from roles.sglang.release import Release
from roles.sglang.settings import SglangSettings


@operation()
def collective_checked(exchanges: Iterable[Exchange], seen: GpuUse) -> Generator[FunctionCommand]:
    """All-reduce and all-to-all known values over GPUs that are free, unless that succeeded before.

    + exchanges: what is tried, one after another
    + seen: the GPUs, and what succeeded before
    """
    for exchange in exchanges:
        if seen.proves(exchange) or seen.busy:
            host.noop("in use" if seen.busy else "checked before")
        else:
            yield FunctionCommand(_try, (exchange,), {})


def check_collective(host: Host, profile: Profile) -> None:
    """The same for the GPUs that a profile is about to use, once the server before it has left them.

    Raises RemoteError with what went wrong.
    """
    exchange = exchange_on(host, profile)
    if exchange and not gpu_use(host).proves(exchange):
        host.log(f"letting the {exchange.ranks} GPUs of {profile.name} exchange values")
        _exchange_values(host, exchange)


def exchange_on(host: Host, profile: Profile) -> Exchange | None:
    """What the profile relies on on this host; None if it uses fewer than two GPUs."""
    hardware = target(host).hardware
    return exchange_of(
        profile,
        gpus=hardware.gpus if hardware else 0,
        release=Release.of(SglangSettings.of(host).version).directory,
        environment=ServeSettings.of(host).environment,
    )


def _try(state: State, host: Host, exchange: Exchange) -> bool:
    try:
        _exchange_values(host, exchange)
    except RemoteError as error:
        host.log(str(error), logger.error)
        return False
    return True


def _exchange_values(host: Host, exchange: Exchange) -> None:
    for command in write(File(PROGRAM, SOURCE.read_text())):
        run(host, command)
    problem, measured = report(attempt(host, exchange.command)[1])
    for line in measured:
        host.log(line)
    if problem:
        raise RemoteError(
            f"the GPUs do not exchange values: {problem}, expected right values within {SECONDS} s: turn off ACS "
            'and IOMMU translation, or try `NCCL_P2P_DISABLE: "1"` in the profile\'s environment.'
        )
    # Asked anew, because the run may have brought another driver.
    identity = shlex.quote(exchange.identity(gpu_use(host).driver))
    run(host, f"echo {identity} >>{PROOF}")
