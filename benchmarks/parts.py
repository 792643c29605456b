"""What is measured, part by part: in each, the tools take turns, so that whatever else the machine does hits all."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from benchmarks import lab
from benchmarks.samples import Comparison, Goal
from benchmarks.site import Site
from benchmarks.tools import ANSIBLE, MITOGEN, SLIPWAY, TOOLS, Failed, Tool
from tests.lab import hosts
from tests.lab.places import Place

DELAY: Final = 0.05
"""Seconds."""


def prepare() -> None:
    """The lab host serves the profile, and has proven it."""
    hosts.up(lab.HOST)
    lab.serve_ansible(lab.HOST)
    with lab.site() as site:
        SLIPWAY.converge(site)


def nothing_to_do(runs: int) -> Iterator[Comparison]:
    """A run that finds all as it should be. That the playbook finds it so, after Slipway, is the proof that both want
    the same."""
    goals = (Goal(ANSIBLE.name, 0.25), Goal(MITOGEN.name, 0.5))
    yield _confirmed("1 host", lab.open_doors(1), runs, *goals)
    with lab.slow_link(lab.open_doors(1), delay=DELAY) as ports:
        yield _confirmed("1 host, 50 ms further away", ports, runs, Goal(ANSIBLE.name, 0.2))


def many_hosts(runs: int) -> Iterator[Comparison]:
    """A run that finds all as it should be, on one host under as many names, with an SSH server each."""
    yield _confirmed("10 hosts", lab.open_doors(10), runs)
    yield _confirmed("50 hosts", lab.open_doors(50), runs, Goal(ANSIBLE.name, 0.2))


def _confirmed(what: str, ports: Sequence[int], runs: int, *goals: Goal) -> Comparison:
    with lab.site(ports) as site:
        return _compared(what, runs, lambda tool: tool.confirm(site), goals)


def one_value(runs: int) -> Iterator[Comparison]:
    """From the start of a run to the moment in which systemd begins to stop the old server. The server is a program
    that does nothing, as it is started anew for each run."""
    with lab.stand_in():
        yield _changed("1 host", lab.open_doors(1), runs)
        with lab.slow_link(lab.open_doors(1), delay=DELAY) as ports:
            yield _changed("1 host, 50 ms further away", ports, runs)


def _changed(what: str, ports: Sequence[int], runs: int) -> Comparison:
    with lab.site(ports, requests=9) as site:

        def until_stopped(tool: Tool) -> float:
            seconds = _until(lab.HOST, lab.STOPPING, tool, site)
            lab.put_back()
            return seconds

        return _compared(what, runs, until_stopped)


def from_bare(runs: int) -> Iterator[Comparison]:
    """From the start of a run to the moment in which systemd begins to start the server, on a new host that has
    downloaded all packages before."""

    def until_started(tool: Tool) -> float:
        hosts.reset(lab.FRESH)
        lab.serve_ansible(lab.FRESH)
        lab.download_packages(lab.FRESH)
        with lab.site([Place(lab.FRESH).port], serve_port=lab.FRESH_PORT) as site:
            return _until(lab.FRESH, lab.STARTING, tool, site)

    yield _compared("1 host", runs, until_started)
    hosts.down(lab.FRESH)


def _until(host: str, event: str, tool: Tool, site: Site) -> float:
    since = time.time()
    with tool.running(site) as run:
        moment = lab.moment(host, event, since, run.process)
        if moment is None:
            raise Failed(f"{tool.name}: the run has ended, and the server was left as it was\n{run.said()}")
    return moment - run.began


def _compared(what: str, runs: int, measured: Callable[[Tool], float], goals: Sequence[Goal] = ()) -> Comparison:
    seconds: dict[str, list[float]] = {tool.name: [] for tool in TOOLS}
    for run in range(runs):
        for tool in TOOLS:
            seconds[tool.name].append(measured(tool))
            print(f"{what}, run {run + 1} of {runs}, {tool.name}: {seconds[tool.name][-1]:.2f} s", flush=True)
    return Comparison(what, seconds, goals)
