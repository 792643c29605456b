"""benchmark: the server performs as its profile says."""

from datetime import datetime

from pyinfra.api.deploy import deploy
from pyinfra.api.host import Host
from pyinfra.context import host

from roles.benchmark.facts import benchmark_facts
from roles.benchmark.operations import verified
from roles.benchmark.proof import is_proven
from roles.benchmark.settings import BenchmarkSettings
from roles.serve.candidate import Candidate
from roles.serve.declared import declared, wanted_names
from roles.serve.settings import ServeSettings
from roles.serve.steps import SwitchError


def gate(host: Host, candidate: Candidate) -> None:
    """What a candidate must pass before a switch to it counts. Raises SwitchError with all that it missed."""
    settings = BenchmarkSettings.of(host)
    if settings.level == "off" or is_proven(candidate, benchmark_facts(host), settings):
        return
    from roles.benchmark.measuring import verify  # here, because most runs measure nothing

    record = verify(host, candidate, settings)
    if not record.accepted:
        missed = record.verdict.failures if record.verdict else []
        raise SwitchError("the benchmark: " + "; ".join(f"{one.point} {one.text}".strip() for one in missed))


def keep_failure(host: Host, candidate: Candidate, started: datetime, text: str) -> None:
    """Keep the record of a candidate that failed before it was measured."""
    from roles.benchmark import keeping  # here, because most runs keep nothing

    keeping.keep_failure(host, candidate, started, text)


@deploy("benchmark")
def benchmark() -> None:
    """Prove what is served, if no switch of this run has done so."""
    settings = BenchmarkSettings.of(host)
    if settings.level == "off" or ServeSettings.of(host).state == "stopped":
        return
    wanted = declared(host).wanted(wanted_names(host), host.name)
    facts = benchmark_facts(host)
    verified(name="Prove that the server performs", candidates=wanted, facts=facts, settings=settings)
