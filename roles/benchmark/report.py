"""`results/report.html` and `results/report.md`: everything that was measured, compared.

python -m roles.benchmark.report      writes both from the records in results/
"""

import sys
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment as Templates
from jinja2 import FileSystemLoader, StrictUndefined

from roles.benchmark.comparison import Ranking, Tradeoff, pareto_set, rankings, traffics
from roles.benchmark.record import Record
from roles.benchmark.report_charts import Chart, ablation, history, latency, pareto, throughput
from roles.benchmark.results import RESULTS, readable, write_whole
from roles.benchmark.sweep import Sweep


class Trials(NamedTuple):
    """A sweep's part of the report."""

    sweep: Sweep
    rankings: Sequence[Ranking]
    pareto_sets: Sequence[tuple[str, str, Tradeoff]]
    """Traffic, profile, and a place of it that nothing beats."""
    charts: Sequence[Chart]


class Host(NamedTuple):
    """One host's part of the report."""

    name: str
    latest: Sequence[Record]
    """The last record of each profile that was measured."""
    failures: Sequence[Record]
    """Those of the last records that failed, with what is known of why."""
    sweeps: Sequence[Trials]
    """The newest first."""
    charts: Sequence[Chart]
    memory: Sequence[tuple[str, str, float, float | None]]
    """Profile, what of its memory, predicted, and reported by the server; per GPU, in GiB or tokens."""
    environment: Sequence[tuple[str, Sequence[tuple[str, bool]]]]
    """Each property with its value for each of `latest`; True where it is not the value of the first."""


class Report(NamedTuple):
    hosts: Sequence[Host]
    unreadable: Sequence[str]

    def __bool__(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.hosts or self.unreadable)


def write_report(results: Path = RESULTS) -> Report:
    """Write both forms of the report next to the records, if there is anything to tell."""
    report = read_results(results)
    for template, name in (("report.html.j2", "report.html"), ("report.md.j2", "report.md")) if report else ():
        write_whole(results / name, _templates().get_template(template).render(report=report))
    return report


@cache
def _templates() -> Templates:
    templates = Templates(
        loader=FileSystemLoader(Path(__file__).parents[2] / "templates" / "benchmark"),
        undefined=StrictUndefined,
        autoescape=lambda name: name is not None and name.startswith("report.html"),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["cell"] = lambda text: str(text).replace("|", "\\|").replace("\n", " ")
    templates.filters["duration"] = lambda seconds: str(timedelta(seconds=round(seconds))) if seconds else ""
    return templates


def read_results(results: Path) -> Report:
    """All that lies in results/<host>/. What cannot be read is named, and does not hide the rest."""
    hosts: list[Host] = []
    unreadable: list[str] = []
    for folder in sorted(path for path in results.glob("*") if path.is_dir()):
        records, not_records = readable(folder.glob("*.json"), Record.read_json)
        sweeps, not_sweeps = readable(folder.glob("sweeps/*.json"), Sweep.read_json)
        unreadable += [*not_records, *not_sweeps]
        if records or sweeps:
            hosts.append(_host(folder.name, records, sweeps))
    return Report(hosts, unreadable)


def _host(name: str, records: Sequence[Record], sweeps: Sequence[Sweep]) -> Host:
    """One host's records, the oldest first, put in relation to each other."""
    newest = {record.profile: record for record in sorted(records, key=lambda record: record.started)}
    latest = {profile: record for profile, record in newest.items() if record.points()}
    return Host(
        name=name,
        latest=list(latest.values()),
        failures=[record for record in newest.values() if not record.accepted],
        sweeps=[_trials(sweep, records) for sweep in sorted(sweeps, key=lambda sweep: sweep.started, reverse=True)],
        charts=[
            *(
                chart
                for traffic in traffics(latest)
                for chart in (
                    throughput(latest, traffic),
                    *latency(latest, traffic),
                    pareto(latest, records, traffic),
                )
            ),
            *history(records),
        ],
        memory=[
            (profile, name, predicted, record.memory.get(name))
            for profile, record in latest.items()
            for name, predicted in (record.prediction.memory if record.prediction else {}).items()
        ],
        environment=_environment(list(latest.values())),
    )


def _trials(sweep: Sweep, records: Sequence[Record]) -> Trials:
    measured = sweep.measured(records)
    return Trials(
        sweep=sweep,
        rankings=rankings(measured, records),
        pareto_sets=[
            (traffic, name, place)
            for traffic in traffics(measured)
            for name, places in pareto_set(measured, records, traffic).items()
            for place in places
        ],
        charts=list(ablation(sweep, records)),
    )


def _environment(records: Sequence[Record]) -> list[tuple[str, list[tuple[str, bool]]]]:
    columns = [_properties(record) for record in records]
    names = dict.fromkeys(name for column in columns for name in column)
    table = []
    for name in names:
        values = [column.get(name, "") for column in columns]
        table.append((name, [(value, value != values[0]) for value in values]))
    return table


def _properties(record: Record) -> dict[str, str]:
    environment = record.environment
    gpus = environment.gpus
    kinds = {"gpus": f"{len(gpus)} x {gpus[0].get('name', '')}", **gpus[0]} if gpus else {"gpus": "none"}
    kinds.pop("name", None)
    return {
        **{name.replace("_", " "): value for name, value in environment.machine.items()},
        **{name.replace("_", " "): value for name, value in kinds.items()},
        "release": environment.release,
        **environment.packages,
        **_flags(environment.command),
        **environment.variables,
    }


def _flags(command: Sequence[str]) -> dict[str, str]:
    """The values of each `--flag` of a command line."""
    flags: dict[str, list[str]] = {}
    for word in command:
        if word.startswith("--"):
            flags[word] = []
        elif flags:
            list(flags.values())[-1].append(word)
    return {flag: " ".join(values) or "yes" for flag, values in flags.items()}


def main() -> None:
    """Write the report, or say that there is none."""
    if not write_report():
        sys.exit(
            f"{RESULTS}/: nothing to report yet; deploy.py and sweep.py leave a record of every measurement there"
        )
    print(RESULTS / "report.html")


if __name__ == "__main__":
    main()
