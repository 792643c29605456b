"""What weights changes."""

import json
import shlex
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any, Final

from pyinfra.api.command import FunctionCommand, StringCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from roles import credentials, paths
from roles.files import File, write
from roles.jobs import Job, run_job
from roles.remote import RemoteError
from roles.weights.layout import fetching, file_of
from roles.weights.model import Model
from roles.weights.settings import WeightsSettings
from roles.weights.sources import TOKEN

PROGRAMS: Final = ("fetch", "sources", "manifest", "completeness", "read_checkpoint", "progress", "tiny")
"""Files of this folder that run on the host."""

_LIMIT: Final = 2 * 24 * 3600
"""Seconds: a terabyte at 6 MB/s."""


@operation()
def model_in_place(
    model: Model, directory: str, settings: WeightsSettings, python: str, complete: bool
) -> Generator[Any]:
    """Fetch the weights aside, verify them, and put them in place in one step.

    + model: whose weights
    + directory: where it is served from
    + settings: those of the role
    + python: the interpreter of a release
    + complete: whether it is there
    """
    if complete:
        host.noop(f"{directory} is complete")
        return
    aside = fetching(directory)
    yield from write(
        File(f"{aside}/instructions.json", json.dumps(instructions(model, directory, settings), indent=1) + "\n")
    )
    for program in PROGRAMS:
        text = (Path(__file__).parent / f"{program}.py").read_text()
        yield from write(File(f"{aside}/roles/weights/{program}.py", text))
    job = Job(
        name=f"weights-{model.name}-{Path(directory).name}",
        command=f"exec {shlex.quote(python)} -P -m roles.weights.fetch {shlex.quote(aside)}",
        environment={**settings.environment, "PYTHONPATH": aside},
        credentials={TOKEN: credentials.path(TOKEN)} if settings.token and model.source.place == "hub" else {},
        limit=_LIMIT,
    )
    yield FunctionCommand(_fetch, (job,), {})


def instructions(model: Model, directory: str, settings: WeightsSettings) -> dict[str, object]:
    """What `fetch.py` is told to bring to `directory`."""
    return {
        "model": model.name,
        "file": file_of(model),
        "place": model.source.place,
        "source": model.source.model_dump(),
        "folder": directory,
        "hub": settings.hub,
        "user": paths.USER,
    }


def _fetch(state: State, host: Host, job: Job) -> bool:
    """The job has shown what it did; that it failed is all that is left to say."""
    try:
        run_job(host, job)
    except RemoteError:
        return False
    return True


@operation()
def old_weights_removed(folders: Iterable[str]) -> Generator[StringCommand]:
    """Remove weights that nothing refers to.

    + folders: those that are there
    """
    for folder in folders:
        yield StringCommand("rm", "-rf", "--one-file-system", "--", shlex.quote(folder))
