"""benchmark: the server performs as its profile says."""

from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError
from pyinfra.api.host import Host
from pyinfra.context import host

from roles.benchmark.facts import benchmark_facts
from roles.benchmark.measuring import is_proven, verify
from roles.benchmark.operations import swept, verified
from roles.benchmark.settings import BenchmarkSettings
from roles.benchmark.sweeping import planned
from roles.files import files_in_place
from roles.refusal import Refusal
from roles.serve import programs
from roles.serve.candidate import Candidate
from roles.serve.declared import declared, wanted_names
from roles.serve.facts import serve_facts
from roles.serve.settings import ServeSettings
from roles.serve.steps import SwitchError


def gate(host: Host, candidate: Candidate) -> None:
    """What a candidate must pass before a switch to it counts. Raises SwitchError with all that it missed."""
    settings = BenchmarkSettings.of(host)
    if settings.level == "off" or is_proven(candidate, benchmark_facts(host), settings):
        return
    record = verify(host, candidate, settings)
    if not record.accepted:
        missed = record.verdict.failures if record.verdict else []
        raise SwitchError("the benchmark: " + "; ".join(f"{one.point} {one.text}".strip() for one in missed))


@deploy("benchmark")
def benchmark() -> None:
    """Prove what is served, if no switch of this run has done so."""
    settings = BenchmarkSettings.of(host)
    if settings.level == "off" or ServeSettings.of(host).state == "stopped":
        return
    wanted = declared(host).wanted(wanted_names(host), host.name)
    facts = benchmark_facts(host)
    verified(name="Prove that the server performs", candidates=wanted, facts=facts, settings=settings)


@deploy("sweep")
def sweep() -> None:
    """Try the profiles that `sweep` and `vary` name, whatever becomes of each."""
    try:
        plan = planned(host)
    except Refusal as refusal:
        raise DeployError(f"host {host.name}: {refusal}") from None
    seen = serve_facts(host, [file.path for file in programs.FILES])
    files_in_place(name="Write the programs that units need", files=programs.FILES, seen=seen.files)
    swept(name="Try each profile and measure it", plan=plan)
