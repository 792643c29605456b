"""Where a model's weights are on a host. Pure."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from roles.weights.model import Model
from roles.weights.settings import WeightsSettings

MANIFEST: Final = "slipway-manifest.json"
"""Names and sizes of the files; written last, so that a directory without it is not a model."""

GENERATOR: Final = Path(__file__).with_name("tiny.py")


def directory(settings: WeightsSettings, model: Model) -> str:
    """The directory that a model is served from; another revision has another one."""
    return f"{settings.root}/{model.name}/{_version(model)}"


def _version(model: Model) -> str:
    if model.source.generate:
        return f"generated-{_generator_digest()}"
    return (model.source.revision or "unpinned")[:12]


@cache
def _generator_digest() -> str:
    return hashlib.sha256(GENERATOR.read_bytes()).hexdigest()[:12]
