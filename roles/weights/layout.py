"""Where a model's weights are on a host, and what their source must say. Pure."""

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Final

from roles.refusal import Refusal
from roles.weights import manifest
from roles.weights.model import Model, Source
from roles.weights.progress import amount
from roles.weights.settings import WeightsSettings

GENERATOR: Final = Path(__file__).with_name("tiny.py")


def directory(settings: WeightsSettings, model: Model) -> str:
    """The directory that a model is served from; another revision has another one."""
    return f"{settings.root}/{model.name}/{_version(model)}"


def fetching(folder: str) -> str:
    """Where the weights of that directory are fetched: beside it, so that one rename puts them in place."""
    path = PurePosixPath(folder)
    return str(path.with_name(f"{manifest.FETCHING}{path.name}"))


def declared_digest(model: Model) -> str | None:
    """The digest that a manifest of the model must have; None if its file does not name the files."""
    files = model.source.files
    return manifest.digest({name: file.model_dump() for name, file in files.items()}) if files else None


def check_source(model: Model, *, offline: bool) -> None:
    """Raise Refusal if the weights cannot be had from what the model's file says; `offline`: on a host without
    a network."""
    source, key = model.source, f"{file_of(model)}: source"
    if source.place == "hub" and source.revision is None:
        raise Refusal(
            f"{key}.revision: required; write the commit of {source.repository} to serve, 40 hex digits, as the "
            "hub shows it under `Files and versions`, or name a `directory` that holds the weights"
        )
    if source.place in ("url", "rsync") and source.revision is None and not source.files:
        raise Refusal(
            f"{key}.revision: required with {source.place}, or `files`, as they tell one version from another"
        )
    if source.place in ("hub", "url") and offline:
        raise Refusal(
            f"{key}.directory: required with `bundle`, as a host without a network cannot reach "
            f"{'the hub' if source.place == 'hub' else source.url}"
        )


def pinned(model: Model, manifest: Mapping[str, Any] | None) -> Model:
    """The model with the files that the manifest of its revision names, where its own file names none."""
    source = model.source
    commit = {"repository": source.repository, "revision": source.revision}
    if source.files or manifest is None or manifest["source"] != commit:
        return model
    return model.model_copy(
        update={"source": Source.model_validate({**source.model_dump(), "files": manifest["files"]})}
    )


def check_room(models: Iterable[Model], root: str, *, begun: int, free: int) -> None:
    """Raise Refusal if the models, of which `begun` bytes are there, do not fit into `free` bytes."""
    sizes = [model.source.total for model in models if model.source.place != "directory"]
    if (needed := sum(size for size in sizes if size) - begun) > free:
        raise Refusal(f"{root}: {amount(needed)} of weights are still to come, and {amount(free)} are free")


def file_of(model: Model) -> str:
    """The model's file, as users know it."""
    return f"group_vars/models/{model.name}.yml"


def _version(model: Model) -> str:
    source = model.source
    if source.generate:
        return f"generated-{_generator_digest()}"
    if source.revision:
        return source.revision[:12]
    if (digest := declared_digest(model)) is not None:
        return f"files-{digest[:12]}"
    if source.directory:
        return f"directory-{hashlib.sha256(source.directory.encode()).hexdigest()[:12]}"
    return "unpinned"


@cache
def _generator_digest() -> str:
    return hashlib.sha256(GENERATOR.read_bytes()).hexdigest()[:12]
