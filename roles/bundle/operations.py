"""How what a bundle holds gets to a host, and takes the place of the network there."""

import shlex
import tempfile
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pyinfra.api.command import FileUploadCommand, StringCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.context import host

from roles.apt import alone
from roles.bundle.bundle import PACKAGES, Bundle, bundle_at
from roles.files import File, Seen, files_program, files_seen, write
from roles.observation import observe
from roles.paths import PROGRAMS
from roles.weights.progress import amount

_PLACE: Final = f"{PROGRAMS}/bundle"

_BATCH: Final = 10**8
"""Bytes that are copied at once, unless a single file has more."""

APT_CONF: Final = f"{_PLACE}/apt.conf"
"""Lets apt see the bundle's packages, and nothing of the host's own sources, which nobody can reach."""


def wanted_bundle(host: Host) -> Bundle | None:
    """The bundle that a host is to be deployed from. Raises Refusal."""
    path = host.data.get("bundle")
    return bundle_at(path) if path else None


def apt_environment(host: Host) -> dict[str, str]:
    """What an operation that runs apt needs in its environment (`_env`)."""
    return {"APT_CONFIG": APT_CONF} if host.data.get("bundle") else {}


def installer_environment(folder: str) -> dict[str, str]:
    """What pip and uv need in their environment to take files of `folder` alone."""
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": folder, "UV_OFFLINE": "1", "UV_FIND_LINKS": folder}


def apt_conf(bundle: Bundle) -> File:
    """apt's configuration for the packages of a bundle: the same for the same packages alone."""
    return File(
        APT_CONF,
        f"// Packages {bundle.part(PACKAGES)['Packages']}\n"
        f'Dir::Etc::SourceList "{_PLACE}/sources.list";\n'
        'Dir::Etc::SourceParts "/dev/null";\n'
        f'Dir::State::Lists "{_PLACE}/lists";\n',
    )


def has_packages(bundle: Bundle, seen: Mapping[str, Seen]) -> bool:
    """Whether a host, whose files were `seen`, has the packages of a bundle."""
    return APT_CONF in seen and seen[APT_CONF].sha256 == apt_conf(bundle).sha256


@operation()
def packages_brought(bundle: Bundle, seen: Mapping[str, Seen]) -> Generator[Any]:
    """Give the host's apt the packages of a bundle.

    + bundle: on this machine
    + seen: the host's files, APT_CONF among them
    """
    if has_packages(bundle, seen):
        host.noop("apt has the bundle's packages")
        return
    yield from brought(bundle, PACKAGES, bundle.part(PACKAGES), f"{_PLACE}/{PACKAGES}")
    yield StringCommand(f"install -d -m 0755 {_PLACE}/lists/partial")
    yield from write(File(f"{_PLACE}/sources.list", f"deb [trusted=yes] file:{_PLACE}/{PACKAGES} ./\n"))
    new = f"{APT_CONF}.new"
    yield from write(File(new, apt_conf(bundle).content))
    yield StringCommand(alone(f"APT_CONFIG={new} apt-get --quiet --error-on=any update && mv {new} {APT_CONF}"))


def brought(bundle: Bundle, part: str, files: Mapping[str, str], folder: str) -> Generator[Any]:
    """Commands that make `folder` on the host hold these files (SHA-256 by name) of a part of the bundle, no others.

    What an earlier run has brought is kept.
    """
    yield StringCommand(f"install -d -m 0755 {shlex.quote(folder)}")
    # From here on the run executes, and the host can be asked what is there.
    seen = files_seen(observe(host, {"brought": files_program([f"{folder}/{name}" for name in files])})["brought"])
    there = {Path(path).name for path, file in seen.items() if file.sha256 == files[Path(path).name]}
    paths = {name: bundle.folder / part / name for name in sorted(set(files) - there)}
    left = sum(path.stat().st_size for path in paths.values())
    for batch in _batches(list(paths.values())):
        more = f" and {len(batch) - 1} more files" if batch[1:] else ""
        host.log(f"{amount(left)} of {part} left to copy, now {batch[0].name}{more}")
        yield from _copied(batch, folder)
        left -= sum(path.stat().st_size for path in batch)
    kept = " ".join(f"! -name {shlex.quote(name)}" for name in files)
    yield StringCommand(f"find {shlex.quote(folder)} -type f {kept} -delete && chmod 0644 {shlex.quote(folder)}/*")


def _batches(paths: Sequence[Path]) -> list[list[Path]]:
    """Files that are copied at once: small ones together, as each copy has its delays."""
    batches: list[list[Path]] = []
    size = _BATCH
    for path in paths:
        if size + path.stat().st_size > _BATCH:
            batches.append([])
            size = 0
        batches[-1].append(path)
        size += path.stat().st_size
    return batches


def _copied(paths: Sequence[Path], folder: str) -> Generator[Any]:
    """Commands that copy files to a folder of the host."""
    if len(paths) == 1:
        (path,) = paths
        yield FileUploadCommand(
            str(path), f"{folder}/{path.name}", remote_temp_filename=host.get_temp_filename(path.name)
        )
        return
    import tarfile  # here, because most runs have no bundle

    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            for path in paths:
                archive.add(path, path.name)
        packed = f"{folder}/.packed"
        yield FileUploadCommand(file, packed, remote_temp_filename=host.get_temp_filename(packed))
    place = shlex.quote(folder)
    yield StringCommand(
        f"tar --extract --no-same-owner --directory {place} --file {place}/.packed && rm {place}/.packed"
    )
