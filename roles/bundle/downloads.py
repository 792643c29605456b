"""Files from the network, whole or not there, gone on with where a run was cut off."""

import shutil
import urllib.parse
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import Final, NamedTuple

import requests

from roles.refusal import Refusal
from roles.weights import manifest
from roles.weights.progress import Progress, amount

_WORKERS: Final = 4
_CHUNK: Final = 2**16
"""Bytes: less is lost where a connection is cut."""

_SECONDS: Final = 60
"""Without a byte, after which a connection is given up."""

PART: Final = ".part"
"""Ends the name of a file that is not whole yet."""


class Download(NamedTuple):
    """A file as it should be."""

    url: str
    bytes: int
    sha256: str

    @property
    def name(self) -> str:
        return urllib.parse.unquote(urllib.parse.urlsplit(self.url).path).rpartition("/")[2]


def bring(downloads: Iterable[Download], folder: Path) -> None:
    """Let `folder` hold these files and no others. Raises Refusal, after which another run goes on."""
    wanted = {download.name: download for download in downloads}
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.name.removesuffix(PART) not in wanted:
            path.unlink()
    total = sum(download.bytes for download in wanted.values())
    needed, free = total - manifest.held(folder), shutil.disk_usage(folder).free
    if needed > free:
        raise Refusal(f"{folder}: {amount(needed)} are still to come, and {amount(free)} are free")
    print(f"{folder}: {len(wanted)} files, {amount(total)}", flush=True)
    with Progress(total, lambda: manifest.held(folder)) as progress, ThreadPoolExecutor(_WORKERS) as pool:
        largest_first = sorted(wanted.values(), key=lambda download: -download.bytes)
        list(pool.map(lambda download: _bring(download, folder / download.name, progress.verified), largest_first))


def _bring(download: Download, path: Path, hashed: Callable[[int], object]) -> None:
    part = path.with_name(path.name + PART)
    if path.exists():
        path.replace(part)  # until it has proved to be right
    have = part.stat().st_size if part.exists() else 0
    try:
        if have < download.bytes:
            _fetch(download.url, part, have)
    except (OSError, requests.RequestException) as error:
        raise Refusal(f"{download.url}: {error}; run it again to go on") from None
    found = manifest.sha256(part, hashed)
    if found != download.sha256:
        part.unlink()
        raise Refusal(f"{download.url}: its sha256 is {found}, not {download.sha256}; run it again to fetch it anew")
    part.replace(path)


def _fetch(url: str, part: Path, have: int) -> None:
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
    with requests.get(url, headers=headers, stream=True, timeout=_SECONDS) as answer:
        answer.raise_for_status()
        with part.open("ab" if answer.status_code == HTTPStatus.PARTIAL_CONTENT else "wb") as file:
            for chunk in answer.iter_content(_CHUNK):
                file.write(chunk)
