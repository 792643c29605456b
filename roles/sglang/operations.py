"""What sglang changes."""

import json
import shlex
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, Final

from pyinfra.api.command import FunctionCommand, StringCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from roles import paths
from roles.bundle.bundle import WHEELS, Bundle
from roles.bundle.operations import brought, installer_environment
from roles.files import File, write
from roles.jobs import Job, run_job
from roles.remote import RemoteError
from roles.serve.good import GOOD
from roles.serve.unit import UNITS
from roles.sglang.facts import SglangFacts
from roles.sglang.release import PYTHONS, Release, Uv, minor
from roles.sglang.settings import SglangSettings

_PROGRAMS: Final = ("builder.py", "checker.py")
"""Files of this folder that run on the host."""


@operation()
def release_built(
    release: Release,
    uv: Uv,
    settings: SglangSettings,
    bundle: Bundle | None,
    environment: Mapping[str, str],
    seen: SglangFacts,
) -> Generator[Any]:
    """Build the release aside, check it, and put it in place in one step.

    + release: what to build
    + uv: the installer, which comes first
    + settings: those of the role
    + bundle: what wheels come from, if not from an index
    + environment: the server's, in which the release is checked
    + seen: the host as it is
    """
    if seen.release and seen.uv:
        host.noop(f"release {release.name} is complete")
        return
    yield StringCommand(f"install -d -m 0755 {shlex.quote(release.aside)}")
    instructions = {
        "pythons": PYTHONS,
        "release": release.directory,
        "lock_sha256": release.sha256,
        "uv_directory": uv.directory,
        "uv_cache": settings.uv_cache,
        "user": paths.USER,
        "environment": dict(environment),
        # What a rollback would put back counts, too.
        "units": [UNITS, GOOD],
    }
    yield from write(File(f"{release.aside}/instructions.json", json.dumps(instructions, indent=2) + "\n"))
    yield from write(File(f"{release.aside}/lock.txt", release.lock))
    yield from write(File(f"{release.aside}/uv.txt", uv.lock))
    for program in _PROGRAMS:
        yield from write(File(f"{release.aside}/{program}", (Path(__file__).parent / program).read_text()))
    installer = dict(settings.installer_environment)
    if bundle:
        wheels = f"{release.aside}/wheels"
        yield from brought(bundle, WHEELS, bundle.wheels(seen.python and minor(seen.python)), wheels)
        installer |= installer_environment(wheels)
    job = Job(
        name=f"release-{release.name}",
        command=f"exec python3 {shlex.quote(f'{release.aside}/builder.py')} {shlex.quote(release.aside)}",
        environment=installer,
    )
    yield FunctionCommand(_build, (job,), {})


def _build(state: State, host: Host, job: Job) -> bool:
    """The job has shown what it did; that it failed is all that is left to say."""
    try:
        run_job(host, job)
    except RemoteError:
        return False
    return True
