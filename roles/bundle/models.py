"""What a bundle says of models: each one's manifest from the hub, and its small files, so that weights which come by
another way can be compared with the revision that was meant."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import requests

from roles.refusal import Refusal
from roles.weights import manifest
from roles.weights.fetch import as_git_object
from roles.weights.layout import file_of
from roles.weights.model import Model
from roles.weights.settings import WeightsSettings
from roles.weights.sources import NAME, Expected, needed

_SECONDS: Final = 60


def collect(models: Iterable[Model], settings: WeightsSettings, folder: Path) -> None:
    """Make a folder for each model. Raises Refusal."""
    token = settings.token.value("weights_token") if settings.token else None
    with requests.Session() as session:
        session.headers.update({"Authorization": f"Bearer {token}"} if token else {})
        for model in models:
            try:
                _describe(session, settings.hub, model, folder / model.name)
            except requests.RequestException as error:
                raise Refusal(f"{file_of(model)}: source: {error}") from None


def _describe(session: requests.Session, hub: str, model: Model, folder: Path) -> None:
    repository, revision = model.source.repository, model.source.revision
    print(f"{folder}: {repository} at {revision}", flush=True)
    tree = f"{hub}/api/models/{repository}/tree/{revision}?recursive=true"
    found = needed({name: file for name, file in _listed(session, tree) if NAME.fullmatch(name)})
    described = {}
    for name, expected in sorted(found.items()):
        sha256 = expected.sha256
        if not name.endswith(".safetensors"):
            path = folder / name
            _bring(session, f"{hub}/{repository}/resolve/{revision}/{name}", path, expected)
            sha256 = manifest.sha256(path)
        described[name] = {"bytes": expected.bytes, "sha256": sha256}
    text = {"model": model.name, "source": {"repository": repository, "revision": revision}, "files": described}
    (folder / manifest.MANIFEST).write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")


def _listed(session: requests.Session, url: str | None) -> Iterator[tuple[str, Expected]]:
    while url:
        answer = session.get(url, timeout=_SECONDS)
        answer.raise_for_status()
        for entry in answer.json():
            if entry["type"] == "file":
                yield entry["path"], _expected(entry)
        url = answer.links.get("next", {}).get("url")


def _expected(entry: Mapping[str, Any]) -> Expected:
    large = entry.get("lfs")
    return Expected(entry["size"], large["oid"] if large else None, None if large else entry["oid"])


def _bring(session: requests.Session, url: str, path: Path, expected: Expected) -> None:
    if not (path.is_file() and _is(path, expected)):
        path.parent.mkdir(parents=True, exist_ok=True)
        answer = session.get(url, timeout=_SECONDS)
        answer.raise_for_status()
        path.write_bytes(answer.content)
    if not _is(path, expected):
        raise Refusal(f"{url}: is not the file of this revision; run it again")


def _is(path: Path, expected: Expected) -> bool:
    return expected.sha256 == manifest.sha256(path) if expected.sha256 else expected.git == as_git_object(path)
