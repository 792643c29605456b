"""Where weights come from. Standard library only, and huggingface_hub for the hub; for the host.

A source says which files it has (`files`) and brings them one by one (`bring`), several at once. What it brings goes
to a path of its own, where the next attempt finds what an earlier one has left.
"""

import errno
import hashlib
import http.client
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from roles.weights.completeness import incomplete
from roles.weights.manifest import MANIFEST

T = TypeVar("T")

TIMEOUT = 60
"""Seconds without a byte after which a connection counts as cut."""

NAME = re.compile(r"[^/\n.\0][^/\n\0]*(/[^/\n.\0][^/\n\0]*)*")
"""Accepted names of files: below the folder, none hidden. No source can make us write elsewhere."""

TOKEN = "hub-token"
"""Name of the systemd credential with the token for the hub."""

UNUSED = re.compile(r"(^|/)original/|\.(bin|ckpt|gguf|h5|msgpack|onnx|ot|pt|pth|tflite)$")
"""The same weights in other forms, which SGLang does not read where there are safetensors."""


FULL = os.strerror(errno.ENOSPC)
"""What other programs say of a full disk."""


class Problem(Exception):  # noqa: N818 -- it is what is said to the user
    """The weights cannot be brought; one sentence says why."""


class Interruption(Problem):
    """The same, and another attempt may succeed."""


class Expected(NamedTuple):
    """What is known of a file before it is here."""

    bytes: int
    sha256: str | None = None
    git: str | None = None
    """SHA-1 of the file as a git object: the hub's hash of small files."""


class Source(ABC):
    """Where weights come from."""

    @abstractmethod
    def files(self) -> dict[str, Expected]:
        """The files by name. Raises Problem."""

    @abstractmethod
    def bring(self, name: str, expected: Expected, part: Path) -> str | None:
        """Make `part` that file; its SHA-256, where all of it has passed through this process. Raises Problem, an
        Interruption if what is there may be gone on with."""

    def room(self, name: str, expected: Expected) -> int:
        """Bytes that the file needs on the disk of the weights."""
        return expected.bytes


def source_of(wish: Mapping[str, Any], folder: Path) -> Source:
    """The source that the instructions name; `folder` is for what it needs meanwhile."""
    source = wish["source"]
    match wish["place"]:
        case "hub":
            return Hub(source["repository"], source["revision"], wish, folder)
        case "directory":
            return Directory(Path(source["directory"]), wish["user"])
        case "url":
            return Mirror(source["url"], source["revision"])
        case "rsync":
            return Rsync(source["rsync"])
        case _:
            return Generator(source["generate"], folder)


class Hub(Source):
    """A commit of a repository, from the Hugging Face hub or from what answers as it does."""

    def __init__(self, repository: str, revision: str, wish: Mapping[str, Any], folder: Path) -> None:
        # A file of which a killed run has fetched a part begins anew: the hub's downloader gives each part another
        # name, and nothing would ever remove them. Whole files are not here any more.
        shutil.rmtree(folder / "part", ignore_errors=True)
        os.environ |= {
            "HF_HOME": str(folder / "hub"),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
            "HF_HUB_VERBOSITY": "error",  # its warnings name signed addresses
        }
        import huggingface_hub  # type: ignore[import-not-found]  # reads its environment when it is imported

        self._hub = huggingface_hub
        self._where = {"endpoint": wish["hub"], "token": token() or False}
        self._what = {"repo_id": repository, "revision": revision}

    def files(self) -> dict[str, Expected]:
        api = self._hub.HfApi(**self._where)
        listed = self._asking("its files", lambda: list(api.list_repo_tree(**self._what, recursive=True)))
        found = {}
        for entry in listed:
            if not isinstance(entry, self._hub.hf_api.RepoFile):
                continue
            large = entry.lfs
            found[entry.path] = Expected(
                bytes=entry.size, sha256=large.sha256 if large else None, git=None if large else entry.blob_id
            )
        return {name: expected for name, expected in found.items() if NAME.fullmatch(name)}

    def bring(self, name: str, expected: Expected, part: Path) -> None:
        folder = part
        for _ in Path(name).parts:
            folder = folder.parent
        self._asking(
            name, lambda: self._hub.hf_hub_download(**self._what, **self._where, filename=name, local_dir=str(folder))
        )

    def _asking(self, wanted: str, action: Callable[[], T]) -> T:
        """What the hub says when it is asked for what is `wanted`, or why it says nothing."""
        import httpx  # type: ignore[import-not-found]  # comes with huggingface_hub
        from huggingface_hub import errors

        what = f"{self._what['repo_id']} at {self._what['revision']}"
        try:
            return action()
        except errors.RevisionNotFoundError:
            raise Problem(f"{what}: the hub has no such revision") from None
        except (errors.GatedRepoError, errors.RepositoryNotFoundError):
            raise Problem(
                f"{what}: the hub shows no such repository; a private or gated one needs `weights_token`, a token "
                "that may read it"
            ) from None
        except errors.HfHubHTTPError as error:
            status = error.response.status_code
            kind = Interruption if status >= 500 or status in (408, 429) else Problem
            raise kind(f"{what}: the hub answers {status} when asked for {wanted}") from None
        except (httpx.HTTPError, errors.LocalEntryNotFoundError, errors.FileMetadataError) as error:
            raise Interruption(f"{what}: the hub cannot be reached: {first_line(error)}") from None
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise
            raise Interruption(f"{what}: {wanted}: {first_line(error)}") from None
        except RuntimeError as error:  # of the hub's faster protocol, which has no errors of its own
            if FULL in str(error):
                raise full() from None
            raise Interruption(f"{what}: {wanted}: {first_line(error)}") from None


class Mirror(Source):
    """A folder that Slipway made, behind a web server."""

    def __init__(self, url: str, revision: str | None) -> None:
        self._url, self._revision = url, revision

    def files(self) -> dict[str, Expected]:
        url = self._url + MANIFEST
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
                manifest = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise _web_problem(url, error) from None
        found, revision = of_manifest(manifest, url)
        if self._revision and revision not in (None, self._revision):
            raise Problem(f"{url}: is of revision {revision}, not {self._revision}")
        return found

    def bring(self, name: str, expected: Expected, part: Path) -> str | None:
        url = self._url + urllib.parse.quote(name)
        have = part.stat().st_size if part.exists() else 0
        if have > expected.bytes:
            part.unlink()
            have = 0
        if have == expected.bytes and part.exists():
            return None
        request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer, part.open("ab") as file:
                if answer.status != http.HTTPStatus.PARTIAL_CONTENT:
                    file.truncate(0)
                    have = 0
                found = copied(answer, file)
        except (OSError, http.client.HTTPException) as error:
            raise _web_problem(url, error) from None
        if (size := part.stat().st_size) < expected.bytes:
            raise Interruption(f"{url}: cut off after {size} of {expected.bytes} bytes")
        return found if have == 0 else None


def copied(source: BinaryIO, target: BinaryIO) -> str:
    """Copy all that comes; its SHA-256."""
    found = hashlib.sha256()
    while chunk := source.read(2**20):
        target.write(chunk)
        found.update(chunk)
    return found.hexdigest()


def _web_problem(url: str, error: Exception) -> Exception:
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        kind = Interruption if error.code >= 500 or error.code in (408, 429) else Problem
        return kind(f"{url}: the server answers {error.code}")
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return error
    return Interruption(f"{url}: {first_line(error)}")


class Rsync(Source):
    """A folder on another host."""

    LISTED = re.compile(r"-\S+ +(?P<bytes>[\d,.]+) \S+ \S+ (?P<name>.+)")
    INTERRUPTED = (10, 12, 30, 35, 255)
    """Exit codes: socket, protocol, two timeouts, and ssh's own."""

    def __init__(self, address: str) -> None:
        self._address = address.rstrip("/")

    def files(self) -> dict[str, Expected]:
        listed = self._rsync(f"{self._address}/", options=["--recursive", "--list-only"])
        found = {}
        for line in listed.splitlines():
            if (entry := self.LISTED.fullmatch(line)) and NAME.fullmatch(entry["name"]):
                found[entry["name"]] = Expected(int(re.sub(r"\D", "", entry["bytes"])))
        return agreed(found, self._manifest() if MANIFEST in found else {}, self._address)

    def _manifest(self) -> dict[str, Expected]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / MANIFEST
            self._rsync(f"{self._address}/{MANIFEST}", str(path))
            return of_manifest(path.read_bytes(), f"{self._address}/{MANIFEST}")[0]

    def bring(self, name: str, expected: Expected, part: Path) -> None:
        self._rsync(f"{self._address}/{name}", str(part), options=["--inplace", "--times"])

    def _rsync(self, *paths: str, options: Sequence[str] = ()) -> str:
        always = [f"--timeout={TIMEOUT}", "--secluded-args", "--no-human-readable", "--no-motd", "--copy-links"]
        ssh = "ssh -o BatchMode=yes -o StrictHostKeyChecking=yes -o ConnectTimeout=20"
        done = subprocess.run(
            ["rsync", *always, *options, "--", *paths],
            env={**os.environ, "RSYNC_RSH": ssh},  # as an option it would be used for rsync:// too
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode == 0:
            return done.stdout
        said = [line for line in done.stderr.splitlines() if line.strip()] or [f"rsync exits {done.returncode}"]
        if any(FULL in line for line in said):
            raise full()
        raise (Interruption if done.returncode in self.INTERRUPTED else Problem)(f"{self._address}: {said[0]}")


class Directory(Source):
    """A folder of this host, which stays as it is: what the server may read is linked, the rest is copied."""

    def __init__(self, folder: Path, user: str) -> None:
        self._folder, self._user = folder, user
        self._paths: dict[str, Path] = {}
        self._copied: set[Path] = set()

    def files(self) -> dict[str, Expected]:
        if not self._folder.is_dir():
            raise Problem(f"{self._folder}: no such directory")
        if lacking := incomplete(self._folder):  # told before hundreds of GB are hashed
            raise Problem(f"{self._folder}: {'; '.join(lacking)}")
        self._paths = {name: path.resolve() for name, path in regular_files(self._folder).items()}
        self._copied = set(unreadable(self._paths.values(), self._user))
        found = {name: Expected(path.stat().st_size) for name, path in self._paths.items()}
        manifest = self._folder / MANIFEST
        known = of_manifest(manifest.read_bytes(), str(manifest))[0] if manifest.is_file() else {}
        return agreed(found, known, str(self._folder))

    def room(self, name: str, expected: Expected) -> int:
        return expected.bytes if self._paths[name] in self._copied else 0

    def bring(self, name: str, expected: Expected, part: Path) -> None:
        path = self._paths[name]
        part.unlink(missing_ok=True)
        if path not in self._copied:
            part.symlink_to(path)
            return
        done = subprocess.run(
            ["cp", "--reflink=auto", "--", str(path), str(part)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            if FULL in done.stderr:
                raise full()
            raise Problem(done.stderr.strip())


class Generator(Source):
    """Random weights, the same everywhere."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind, self._made = kind, folder / "made"

    def files(self) -> dict[str, Expected]:
        program = Path(__file__).with_name("tiny.py")
        command = [sys.executable, str(program), "--kind", self._kind, "--out", str(self._made)]
        if subprocess.run(command, check=False).returncode:
            raise Problem(f"{self._kind} cannot be made")
        return {name: Expected(path.stat().st_size) for name, path in regular_files(self._made).items()}

    def room(self, name: str, expected: Expected) -> int:
        return 0

    def bring(self, name: str, expected: Expected, part: Path) -> None:
        part.unlink(missing_ok=True)
        part.hardlink_to(self._made / name)


def full() -> OSError:
    """What Python itself raises on a full disk."""
    return OSError(errno.ENOSPC, FULL)


def token() -> str | None:
    """The token for the hub, where systemd has given one to this job."""
    try:
        return (Path(os.environ["CREDENTIALS_DIRECTORY"]) / TOKEN).read_text().strip() or None
    except (KeyError, FileNotFoundError):
        return None


def of_manifest(text: bytes, where: str) -> tuple[dict[str, Expected], str | None]:
    """The files that a manifest names, and the revision that they are of. Raises Problem."""
    try:
        manifest = json.loads(text)
        files = {name: Expected(int(file["bytes"]), str(file["sha256"])) for name, file in manifest["files"].items()}
        revision = manifest.get("source", {}).get("revision")
    except (ValueError, LookupError, TypeError, AttributeError):
        raise Problem(f"{where}: no manifest of weights") from None
    if strange := [name for name in files if not NAME.fullmatch(name)]:
        raise Problem(f"{where}: {strange[0]!r} is no file below the model's folder")
    return files, revision


def agreed(found: Mapping[str, Expected], known: Mapping[str, Expected], where: str) -> dict[str, Expected]:
    """The files that are `known`, or those `found` that a server needs where nothing is known. Raises Problem where
    they differ."""
    for name, expected in known.items():
        if name not in found:
            raise Problem(f"{where}: {name} is not there")
        if found[name].bytes != expected.bytes:
            raise Problem(f"{where}: {name} has {found[name].bytes} bytes, not {expected.bytes}")
        if None not in (found[name].sha256, expected.sha256) and found[name].sha256 != expected.sha256:
            raise Problem(f"{where}: {name} has the sha256 {found[name].sha256}, not {expected.sha256}")
    return dict(known) or needed(found)


def needed(found: Mapping[str, Expected]) -> dict[str, Expected]:
    """The files without what SGLang does not read."""
    unused = UNUSED if any(name.endswith(".safetensors") for name in found) else re.compile(r"(?!)")
    return {name: file for name, file in found.items() if name != MANIFEST and not unused.search(name)}


def regular_files(folder: Path) -> dict[str, Path]:
    """The files below a folder by name, without hidden ones and the manifest."""
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path for name, path in found.items() if NAME.fullmatch(name) and name != MANIFEST}


def unreadable(paths: Iterable[Path], user: str) -> Sequence[Path]:
    """Those of the files that `user` may not read; without root's rights, those that we may not."""
    who: dict[str, Any] = {}
    if os.geteuid() == 0:
        who = {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
    program = 'while IFS= read -r path; do [ -r "$path" ] || printf "%s\\n" "$path"; done'
    asked = "".join(f"{path}\n" for path in paths)
    done = subprocess.run(
        ["/bin/sh", "-c", program], input=asked, capture_output=True, text=True, check=True, cwd="/", **who
    )
    return [Path(line) for line in done.stdout.splitlines()]


def first_line(error: Exception) -> str:
    """An error's text in one line."""
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__
