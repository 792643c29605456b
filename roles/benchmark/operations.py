"""What benchmark makes true: the server that runs has proven that it performs, or all trials have been made."""

from collections.abc import Generator, Sequence

from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from roles.benchmark.facts import benchmark_facts
from roles.benchmark.measuring import is_proven, verify
from roles.benchmark.settings import BenchmarkSettings
from roles.benchmark.sweep import Trial
from roles.benchmark.sweeping import is_finished, sweep
from roles.serve.candidate import Candidate
from roles.serve.declared import Declared


@operation()
def verified(candidates: Sequence[Candidate], settings: BenchmarkSettings) -> Generator[FunctionCommand]:
    """Measure the servers and judge what was measured, unless accepted records prove them already.

    A switch of the same run may just have proven them, so the host is asked here and not in the task.

    + candidates: the servers that run
    + settings: how thoroughly to measure
    """
    facts = benchmark_facts(host)
    for candidate in candidates:
        if is_proven(candidate, facts, settings):
            host.noop(f"{candidate.profile.name} is proven by a record")
        else:
            yield FunctionCommand(_verified, (candidate, settings), {})


def _verified(state: State, host: Host, candidate: Candidate, settings: BenchmarkSettings) -> bool:
    return verify(host, candidate, settings).accepted


@operation()
def swept(tried: Sequence[Trial], declaration: Declared) -> Generator[FunctionCommand]:
    """Serve and measure each profile in turn, and end with what served before.

    + tried: the profiles, in order
    + declaration: how each would be served
    """
    if is_finished(host, tried):
        host.noop("every trial of this sweep has been made")
        return
    yield FunctionCommand(_swept, (tried, declaration), {})


def _swept(state: State, host: Host, tried: Sequence[Trial], declaration: Declared) -> bool:
    return sweep(host, tried, declaration)
