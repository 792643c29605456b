"""What benchmark makes true: the server that runs has proven that it performs."""

from collections.abc import Generator

from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from roles.benchmark.facts import benchmark_facts
from roles.benchmark.measuring import proof_of, verify
from roles.benchmark.record import Prediction, proven
from roles.benchmark.rounds import Level
from roles.serve.candidate import Candidate


@operation()
def verified(
    candidate: Candidate,
    prediction: Prediction | None,
    level: Level,
    round_limit: int,
    again: bool,
) -> Generator[FunctionCommand]:
    """Measure the server and judge the measurement, unless an accepted record proves it already.

    A switch of the same run may just have proven it, so the host is asked here and not in the task.

    + candidate: the server that runs
    + prediction: what was expected of it
    + level: how thoroughly to measure
    + round_limit: seconds after which a round counts as stalled
    + again: measure although it is proven
    """
    facts = benchmark_facts(host)
    done = proven(facts.names, proof_of(candidate, facts), level)
    if done is not None and not again:
        host.noop(f"{candidate.profile.name} is proven by {done}")
        return
    yield FunctionCommand(_verified, (candidate, prediction, level, round_limit), {})


def _verified(
    state: State,  # with it, pyinfra takes False for a failure
    host: Host,
    candidate: Candidate,
    prediction: Prediction | None,
    level: Level,
    round_limit: int,
) -> bool:
    return verify(host, candidate, prediction, level, round_limit).accepted
