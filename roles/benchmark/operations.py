"""What benchmark makes true: the server that runs has proven that it performs."""

from collections.abc import Generator, Sequence

from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from roles.benchmark.facts import BenchmarkFacts, benchmark_facts
from roles.benchmark.proof import is_proven
from roles.benchmark.settings import BenchmarkSettings
from roles.serve.candidate import Candidate


@operation()
def verified(
    candidates: Sequence[Candidate], facts: BenchmarkFacts, settings: BenchmarkSettings
) -> Generator[FunctionCommand]:
    """Measure the servers and judge what was measured, unless accepted records prove them already.

    + candidates: the servers that run
    + facts: what has been proven on the host
    + settings: how thoroughly to measure
    """
    for candidate in candidates:
        if is_proven(candidate, facts, settings):
            host.noop(f"{candidate.profile.name} is proven by a record")
        else:
            yield FunctionCommand(_verified, (candidate, facts, settings), {})


def _verified(
    state: State, host: Host, candidate: Candidate, before: BenchmarkFacts, settings: BenchmarkSettings
) -> bool:
    now = benchmark_facts(host)
    if now != before and is_proven(candidate, now, settings.model_copy(update={"again": False})):
        host.log(f"{candidate.profile.name} was proven when it was switched to")
        return True
    from roles.benchmark.measuring import verify  # here, because most runs measure nothing

    return verify(host, candidate, settings).accepted
