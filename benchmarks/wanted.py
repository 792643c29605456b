"""What Slipway makes true of a host, as the variable `wanted` of the playbook that makes the same true."""

from collections.abc import Mapping
from pathlib import Path

from pyinfra.api.config import Config
from pyinfra.api.host import Host
from pyinfra.api.state import State

from inventory import load, target
from roles import paths
from roles.base.layout import DIRECTORIES, LIMITS, PACKAGES
from roles.base.settings import BaseSettings
from roles.files import File
from roles.serve import programs
from roles.serve.declared import declared, wanted_names
from roles.serve.settings import ServeSettings
from roles.sglang.release import Release, Uv
from roles.sglang.settings import SglangSettings
from roles.weights import layout, manifest, operations
from roles.weights.settings import WeightsSettings

_ROLES = Path(programs.__file__).parents[1]


def wanted(inventory: Path, data: Mapping[str, object]) -> dict[str, object]:
    """What is wanted of the inventory's hosts, which want all the same, with `data` as from `--data`."""
    site = load(inventory, data)
    State(site, Config())
    host = next(iter(site))
    return {
        "packages": [*PACKAGES, *BaseSettings.of(host).packages],
        "user": paths.USER,
        "home": paths.STATE,
        "directories": [directory._asdict() for directory in DIRECTORIES],
        "limits": LIMITS._asdict(),
        **_release(host),
        "weights": _weights(host),
        **_units(host),
    }


def _release(host: Host) -> dict[str, object]:
    settings, uv = SglangSettings.of(host), Uv.locked()
    release = Release.of(settings.version)
    return {
        "uv": {"directory": uv.directory, "lock": uv.lock, "cache": settings.uv_cache},
        "release": {
            "directory": release.directory,
            "aside": release.aside,
            "lock": str(_ROLES / f"sglang/locks/{release.version}.txt"),
            "sha256": release.sha256,
            "checker": str(_ROLES / "sglang/checker.py"),
            "environment": dict(ServeSettings.of(host).environment),
        },
    }


def _weights(host: Host) -> dict[str, object]:
    settings, model = WeightsSettings.of(host), target(host).model
    directory = layout.directory(settings, model)
    return {
        "manifest": f"{directory}/{manifest.MANIFEST}",
        "aside": layout.fetching(directory),
        "programs": [str(_ROLES / f"weights/{name}.py") for name in operations.PROGRAMS],
        "instructions": operations.instructions(model, directory, settings),
    }


def _units(host: Host) -> dict[str, object]:
    units = {name: candidate.unit for name, candidate in declared(host).candidates.items()}
    (profile,) = wanted_names(host)
    unit = units.pop(profile)
    return {
        "programs": {
            "folder": str(Path(programs.READY.path).parent),
            "files": [str(_ROLES / "serve" / Path(file.path).name) for file in programs.FILES],
        },
        "unit": _unit(unit),
        "other_units": [_unit(other) for other in units.values()],
    }


def _unit(file: File) -> dict[str, str]:
    return {"name": Path(file.path).name, "path": file.path, "content": file.content}
