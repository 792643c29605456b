"""What flash_attn changes."""

import json
import shlex
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, Final

from pyinfra import logger
from pyinfra.api.command import FileDownloadCommand, FileUploadCommand, FunctionCommand, StringCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from roles.bundle.bundle import FLASH_ATTN, Bundle
from roles.bundle.operations import brought, installer_environment
from roles.files import File, write
from roles.flash_attn.builder import RECORD
from roles.flash_attn.facts import flash_attn_facts
from roles.flash_attn.settings import FlashAttnSettings
from roles.flash_attn.wheels import KEPT, key, lock_of
from roles.jobs import Job, run_job
from roles.remote import RemoteError

CONTROLLER: Final = Path(__file__).parents[2] / "wheels"
"""Where built wheels are kept on this side, for the next host."""

_LIMIT: Final = 6 * 3600
"""Seconds; one worker compiles the 73 files of one architecture in about three hours."""


@operation()
def installed(
    settings: FlashAttnSettings,
    release: str,
    cuda_home: str,
    architecture: str,
    record: str,
    seen: str,
    environment: Mapping[str, str],
    bundle: Bundle | None,
) -> Generator[Any]:
    """Make or find a wheel, prove it, and add it to the release.

    + settings: the role's
    + release: path of the release
    + cuda_home: path of the toolkit
    + architecture: flash-attn's name for the GPUs', e.g. `120`
    + record: what the release's record will say
    + seen: what it says
    + environment: of pip
    + bundle: what its files come from, if not from an index
    """
    if seen == record:
        host.noop("flash-attn is installed and proved")
        return
    yield StringCommand(f"install -d -m 0755 {KEPT}")
    # From here on the run executes: the release is in place, and says what the wheel must fit.
    facts = flash_attn_facts(host, release, cuda_home)
    if facts.release is None:
        yield FunctionCommand(_fail, (f"there is no whole release in {release}, expected one: deploy `sglang`.",), {})
        return
    given = settings.attn == "wheel"
    name = settings.attn_wheel_sha256 if given else key(settings.attn_version, facts.release, architecture)
    folder = f"{KEPT}/.building-{name}"
    yield StringCommand(f"install -d -m 0755 {folder}")
    here = next((CONTROLLER / name).glob("*.whl"), None)
    if here and name not in facts.wheels:
        yield from _upload(here, f"{KEPT}/{name}")
    instructions = {
        "release": release,
        "cuda_home": cuda_home,
        "kept": f"{KEPT}/{name}",
        "architecture": architecture,
        "wheel": settings.attn_wheel if given else "",
        "wheel_sha256": settings.attn_wheel_sha256,
        "environment": settings.attn_environment,
        "record": record,
    }
    yield from write(File(f"{folder}/instructions.json", json.dumps(instructions, indent=2) + "\n"))
    yield from write(File(f"{folder}/source.txt", lock_of(settings.attn_version)))
    yield from write(File(f"{folder}/tools.txt", lock_of("tools")))
    yield from write(File(f"{folder}/builder.py", Path(__file__).with_name("builder.py").read_text()))
    command = f"exec python3 {folder}/builder.py {folder}"
    installer = dict(environment)
    if bundle:
        files = f"{folder}/files"
        yield from brought(bundle, FLASH_ATTN, bundle.part(FLASH_ATTN), files)
        installer |= installer_environment(files)
    job = Job(name=f"flash-attn-{name}", command=command, environment=installer, limit=_LIMIT)
    yield FunctionCommand(_work, (job,), {})
    if not here and not given:
        yield from _download(flash_attn_facts(host, release, cuda_home).wheels[name], CONTROLLER / name)


@operation()
def removed(release: str, uv: str, seen: str) -> Generator[StringCommand]:
    """Take flash-attn 2 out of the release.

    + release: path of the release
    + uv: path of the installer
    + seen: what the release's record says
    """
    if not seen:
        host.noop("flash-attn is not in the release")
        return
    python = shlex.quote(f"{release}/bin/python")
    yield StringCommand(f"{shlex.quote(uv)} pip uninstall --quiet --python {python} flash-attn")
    yield StringCommand(f"rm -f {shlex.quote(f'{release}/{RECORD}')}")


def _upload(wheel: Path, folder: str) -> Generator[Any]:
    new = f"{folder}.new"
    yield StringCommand(f"rm -rf {new} && install -d -m 0755 {new}")
    yield FileUploadCommand(
        str(wheel), f"{new}/{wheel.name}", remote_temp_filename=host.get_temp_filename(wheel.name)
    )
    yield StringCommand(f"mv {new} {folder}")


def _download(wheel: str, folder: Path) -> Generator[Any]:
    folder.mkdir(parents=True, exist_ok=True)
    name = Path(wheel).name
    partial = folder / f".{name}.new"
    yield FileDownloadCommand(wheel, str(partial), remote_temp_filename=host.get_temp_filename(name))
    partial.rename(folder / name)


def _work(state: State, host: Host, job: Job) -> bool:
    """The job has shown what it did; that it failed is all that is left to say."""
    try:
        run_job(host, job)
    except RemoteError:
        return False
    return True


def _fail(state: State, host: Host, sentence: str) -> bool:
    host.log(sentence, logger.error)
    return False
