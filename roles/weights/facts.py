"""What weights reads from a host, in one round trip."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from pyinfra.api.host import Host

from roles.observation import observe
from roles.weights.layout import MANIFEST


@dataclass(frozen=True)
class WeightsFacts:
    """The host as weights found it."""

    complete: frozenset[str]
    """The directories that hold a complete model."""


def weights_facts(host: Host, directories: Iterable[str]) -> WeightsFacts:
    """Ask which of the directories hold a complete model."""
    manifests = " ".join(shlex.quote(f"{directory}/{MANIFEST}") for directory in directories)
    seen = observe(host, {"manifests": f"ls -d -- {manifests}"})
    return WeightsFacts(complete=frozenset(line.removesuffix(f"/{MANIFEST}") for line in seen["manifests"]))
