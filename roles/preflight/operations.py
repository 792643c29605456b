"""What the preflight does beyond looking: it lets the GPUs exchange values."""

import shlex
from collections.abc import Generator
from typing import Any

from pyinfra import logger
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from roles.files import File, write
from roles.preflight.exchange import PROGRAM, PROOF, SECONDS, SOURCE, Exchange, report
from roles.preflight.facts import GpuUse, gpu_use
from roles.remote import attempt, run


@operation()
def collective_checked(exchange: Exchange, seen: GpuUse) -> Generator[Any]:
    """All-reduce and all-to-all known values over the GPUs, unless that succeeded before under the same conditions.

    + exchange: what is tried
    + seen: the GPUs, and the last success
    """
    if seen.proof == exchange.identity(seen.driver):
        host.noop("checked before")
        return
    yield from write(File(PROGRAM, SOURCE.read_text()))
    yield FunctionCommand(_check, (exchange,), {})


def _check(state: State, host: Host, exchange: Exchange) -> bool:
    problem, measured = report(attempt(host, exchange.command)[1])
    for line in measured:
        host.log(line)
    if problem:
        host.log(
            f"the GPUs do not exchange values: {problem}, expected right values within {SECONDS} s: turn off ACS "
            'and IOMMU translation, or try `NCCL_P2P_DISABLE: "1"` in the profile\'s environment.',
            logger.error,
        )
        return False
    # Asked anew, because the run may have brought another driver.
    identity = shlex.quote(exchange.identity(gpu_use(host).driver))
    run(host, f"echo {identity} >{PROOF}.new && mv {PROOF}.new {PROOF}")
    return True
