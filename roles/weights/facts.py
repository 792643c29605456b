"""What weights reads from a host, in one round trip."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from pyinfra.api.host import Host

from roles import credentials
from roles.observation import observe
from roles.serve.good import GOOD
from roles.weights import manifest
from roles.weights.layout import declared_digest
from roles.weights.model import Model
from roles.weights.settings import WeightsSettings
from roles.weights.sources import TOKEN

REFERENCES: Final = ("/etc/systemd/system/sglang-*.service", f"{GOOD}/*")
"""Files that name weights which a server needs, or one that a rollback starts."""


class Folder(NamedTuple):
    """A folder of weights, whole or not."""

    bytes: int
    used: bool
    """A unit or a running program names it."""


class WeightsFacts(NamedTuple):
    """The host as weights found it."""

    complete: frozenset[str]
    """The directories that hold a complete model: as its manifest says, and the model's file where it says more."""
    folders: Mapping[str, Folder]
    """Every folder of weights, those of unfinished downloads included."""
    free: int | None
    """Bytes on the disk of the weights; None if the host has no Python yet."""
    has_token: bool
    has_rsync: bool


def weights_facts(host: Host, models: Mapping[str, Model]) -> WeightsFacts:
    """Ask what is there of the models, by directory, and what else."""
    settings = WeightsSettings.of(host)
    program = shlex.quote(Path(manifest.__file__).read_text())
    look = shlex.join([settings.root, *REFERENCES])
    seen = observe(
        host,
        {
            "weights": f"python3 -c {program} look {look}",
            "token": f"test -e {credentials.path(TOKEN)} && echo yes",
            "rsync": "command -v rsync",
        },
    )
    found = json.loads("".join(seen["weights"]) or '{"free": null, "folders": {}}')
    return WeightsFacts(
        complete=frozenset(
            path
            for path, folder in found["folders"].items()
            if folder["digest"] and _is(models.get(path), folder["digest"])
        ),
        folders={path: Folder(folder["bytes"], folder["used"]) for path, folder in found["folders"].items()},
        free=found["free"],
        has_token=bool(seen["token"]),
        has_rsync=bool(seen["rsync"]),
    )


def _is(model: Model | None, digest: str) -> bool:
    declared = declared_digest(model) if model else None
    return declared is None or declared == digest
