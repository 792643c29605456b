"""sweep: every trial has been made. Beside tasks.py, because a deploy needs nothing of it."""

from collections.abc import Generator

from pyinfra.api.command import FunctionCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from roles.benchmark import sweeping
from roles.files import files_in_place
from roles.refusal import Refusal
from roles.serve import programs
from roles.serve.facts import serve_facts
from roles.serve.interruption import guarded


@deploy("sweep")
def sweep() -> None:
    """Try the profiles that `sweep` and `vary` name, whatever becomes of each."""
    try:
        plan = sweeping.planned(host)
    except Refusal as refusal:
        raise DeployError(f"host {host.name}: {refusal}") from None
    seen = serve_facts(host, [file.path for file in programs.FILES])
    files_in_place(name="Write the programs that units need", files=programs.FILES, seen=seen.files)
    swept(name="Try each profile and measure it", plan=plan)


@operation()
def swept(plan: sweeping.Plan) -> Generator[FunctionCommand]:
    """Serve and measure each profile in turn, and end with what served before.

    + plan: what is tried, and what has become of it
    """
    if plan.is_finished:
        host.noop("every trial of this sweep has been made; `benchmark_again` makes them once more")
        sweeping.show(host, plan.state)
        return
    yield FunctionCommand(_swept, (plan,), {})


def _swept(state: State, host: Host, plan: sweeping.Plan) -> bool:
    with guarded():
        return sweeping.sweep(host, plan)
