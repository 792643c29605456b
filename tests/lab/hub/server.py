"""A small HTTP server that speaks the hub's endpoints, and has the faults that real networks have.

Simulated here: the answers of the Hugging Face hub to `list_repo_tree` and `hf_hub_download` (the tree of a
commit; HEAD and GET of a file, with ranges), without its faster protocol. Any other path is a plain web directory
of the same files, `/files/REPOSITORY/REVISION/…`.
"""

import hashlib
import json
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

LARGE = 1000
"""Bytes from which on the hub keeps a file beside git, and names its SHA-256."""


@dataclass
class Faults:
    """What goes wrong."""

    cut_after: int | None = None
    """Bytes of a body after which the connection is cut."""
    cuts: int = 0
    """How many connections are still to be cut."""
    corrupt: set[str] = field(default_factory=set)
    """Names of files of which a byte is wrong."""
    unavailable: set[str] = field(default_factory=set)
    """Names of files for which the server is too busy."""
    no_ranges: bool = False
    """Whether every file is sent from its beginning."""
    held: set[str] = field(default_factory=set)
    """Names of files whose bodies end in the middle until `release` is set, with the connection open."""
    release: threading.Event = field(default_factory=threading.Event)
    reached: threading.Event = field(default_factory=threading.Event)
    """Set when a body of `held` has reached its middle."""


@dataclass
class Hub:
    """What it has, and what was asked of it."""

    url: str
    repositories: dict[tuple[str, str], dict[str, bytes]] = field(default_factory=dict)
    """Files by name of each repository and revision."""
    token: str | None = None
    """What it wants to see before it shows anything."""
    faults: Faults = field(default_factory=Faults)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    """Method, path, and range of each request."""

    def bodies(self) -> list[str]:
        """Names of the files whose content was asked for, in order."""
        return [
            path.rsplit("/", 1)[-1] for method, path, _ in self.requests if method == "GET" and "/api/" not in path
        ]


@contextmanager
def serving(address: str = "127.0.0.1") -> Iterator[Hub]:
    """A hub on a free port of `address`."""
    server = _Server((address, 0), _Handler)
    hub = Hub(f"http://{address}:{server.server_port}")
    server.hub = hub  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        hub.faults.release.set()
        server.shutdown()
        server.server_close()
        thread.join()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def git_object(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed is none of the server's concern."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any
    TREE: ClassVar = "/tree/"

    @property
    def hub(self) -> Hub:
        hub: Hub = self.server.hub
        return hub

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: `requests` keeps it."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path = urllib.parse.unquote(self.path.partition("?")[0])
        self.hub.requests.append((self.command, path, self.headers.get("Range")))
        if self.hub.token and self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            self._refuse(401, "GatedRepo")
        elif path.startswith("/api/models/") and self.TREE in path:
            repository, _, revision = path.removeprefix("/api/models/").partition(self.TREE)
            self._tree(repository, revision)
        elif "/resolve/" in path:
            repository, _, rest = path.lstrip("/").partition("/resolve/")
            revision, _, name = rest.partition("/")
            self._file(repository, revision, name, body=body)
        elif path.startswith("/files/"):
            owner, repository, revision, name = path.removeprefix("/files/").split("/", 3)
            self._file(f"{owner}/{repository}", revision, name, body=body)
        else:
            self._refuse(404, "RepoNotFound")

    def _tree(self, repository: str, revision: str) -> None:
        files = self.hub.repositories.get((repository, revision))
        if files is None:
            known = any(name == repository for name, _ in self.hub.repositories)
            self._refuse(404, "RevisionNotFound" if known else "RepoNotFound")
            return
        entries = []
        for name, content in files.items():
            entry: dict[str, Any] = {"type": "file", "path": name, "size": len(content), "oid": git_object(content)}
            if len(content) >= LARGE:
                entry["lfs"] = {"oid": sha256(content), "size": len(content), "pointerSize": 130}
            entries.append(entry)
        self._send(200, json.dumps(entries).encode(), {"Content-Type": "application/json"}, body=True)

    def _file(self, repository: str, revision: str, name: str, *, body: bool) -> None:
        content = self.hub.repositories.get((repository, revision), {}).get(name)
        if content is None:
            self._refuse(404, "EntryNotFound")
            return
        if name in self.hub.faults.unavailable:
            self._refuse(503, "Busy")
            return
        tag = sha256(content) if len(content) >= LARGE else git_object(content)
        headers = {"ETag": f'"{tag}"', "X-Repo-Commit": revision, "Accept-Ranges": "bytes"}
        if name in self.hub.faults.corrupt:
            content = bytes([content[0] ^ 1]) + content[1:]
        start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").split("-")[0])
        if self.hub.faults.no_ranges:
            start = 0
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._send(206 if start else 200, content[start:], headers, body=body, name=name)

    def _send(self, status: int, content: bytes, headers: dict[str, str], *, body: bool, name: str = "") -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(key, value)
        self.end_headers()
        if not body:
            return
        faults = self.hub.faults
        if faults.cut_after is not None and faults.cuts > 0 and len(content) > faults.cut_after:
            faults.cuts -= 1
            content = content[: faults.cut_after]
            self.close_connection = True
        if name in faults.held and not faults.release.is_set():
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            faults.reached.set()
            faults.release.wait()
            content = content[len(content) // 2 :]
        self.wfile.write(content)

    def _refuse(self, status: int, code: str) -> None:
        self._send(status, b"", {"X-Error-Code": code, "X-Error-Message": code}, body=True)
