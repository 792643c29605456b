"""What benchmark makes true: the server that runs has proven that it performs, or all trials have been made."""

from collections.abc import Generator, Sequence

from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from roles.benchmark.facts import BenchmarkFacts, benchmark_facts
from roles.benchmark.measuring import is_proven, verify
from roles.benchmark.settings import BenchmarkSettings
from roles.benchmark.sweeping import Plan, show, sweep
from roles.serve.candidate import Candidate
from roles.serve.interruption import guarded


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
    return verify(host, candidate, settings).accepted


@operation()
def swept(plan: Plan) -> Generator[FunctionCommand]:
    """Serve and measure each profile in turn, and end with what served before.

    + plan: what is tried, and what has become of it
    """
    if plan.is_finished:
        host.noop("every trial of this sweep has been made; `benchmark_again` makes them once more")
        show(host, plan.state)
        return
    yield FunctionCommand(_swept, (plan,), {})


def _swept(state: State, host: Host, plan: Plan) -> bool:
    with guarded():
        return sweep(host, plan)
