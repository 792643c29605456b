"""What has no counterpart in Ansible: Slipway's own cost, and its long work beside the bare tools for it."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from getpass import getuser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks import lab
from benchmarks.samples import Comparison, Goal
from benchmarks.tools import Failed, as_a_user_has_it
from roles.sglang.release import Release, Uv, locked_versions
from roles.weights import manifest
from tests.lab import hosts
from tests.lab.hub.content import safetensors
from tests.lab.hub.server import serving, sha256
from tests.lab.places import CHECKOUT

_HOSTS: Final = {"rtx_pro_6000_x8": {"hosts": {"gpu1": {"ansible_host": "127.0.0.1", "ansible_port": 1}}}}
"""Nobody answers there, so that it is planned from its variables alone."""

PYINFRA: Final = str(Path(sys.executable).with_name("pyinfra"))

_SHARDS: Final = 8
_SHARD_BYTES: Final = 128 * 2**20
_REVISION: Final = "a" * 40


def loading(runs: int) -> Iterator[Comparison]:
    """CPU time of Python until pyinfra would connect: with Slipway's modules and inventory, and with an empty one."""
    common = "import time, sys, pyinfra_cli.main, pyinfra_cli.cli; sys.path.append('.'); "
    pyinfra = "from pyinfra.api import Inventory; Inventory(([], {})); "
    modules = ", ".join(re.findall(r"^from (\S+) import", (CHECKOUT / "deploy.py").read_text(), re.MULTILINE))
    slipway = f"import {modules}, inventory.known_hosts, inventory.reaching; inventory.load('inventory'); "
    clock = "print(time.process_time())"

    def seconds(program: str) -> float:
        return float(_run(sys.executable, "-c", program))

    programs = {"Slipway": f"{common}{slipway}{clock}", "pyinfra": f"{common}{pyinfra}{clock}"}
    measured = {name: lambda program=program: seconds(program) for name, program in programs.items()}
    yield _compared("imports and inventory", runs, measured, Goal("pyinfra", more=0.15))


def planning(runs: int) -> Iterator[Comparison]:
    """`plan.py` over all shipped profiles, and pyinfra's start with the same inventory (`debug-inventory`)."""
    with TemporaryDirectory(prefix="bench-") as folder:
        inventory = Path(folder, "inventory")
        inventory.mkdir()
        (inventory / "hosts.yml").write_text(json.dumps(_HOSTS))
        measured = {
            "Slipway": lambda: _timed(PYINFRA, str(inventory), "plan.py"),
            "pyinfra": lambda: _timed(PYINFRA, str(inventory), "debug-inventory"),
        }
        count = len(list((CHECKOUT / "group_vars/profiles").glob("*.yml")))
        yield _compared(f"a plan of {count} profiles", runs, measured, Goal("pyinfra", more=1.0))


def installing(runs: int) -> Iterator[Comparison]:
    """A run of the role sglang, and `uv pip sync` of its lock: with all packages in uv's cache, and with an empty
    cache, when both download them. The role also imports what a server imports, which compiles and checks it."""
    release, uv = Release.of(locked_versions()[-1]), Uv.locked()
    program = f"{uv.directory}/bin/uv"
    bare, away = "/opt/slipway/bare", "/opt/slipway/away"

    def slipway(before: str) -> float:
        hosts.run(lab.HOST, f"{before} && mv {release.directory} {away}")
        with lab.site() as site:
            seconds = _timed(PYINFRA, "-y", str(site.inventory), "roles.sglang.tasks.sglang")
        hosts.run(lab.HOST, f"rm -rf {release.directory} && mv {away} {release.directory}")
        return seconds

    def sync(before: str) -> float:
        lab.send(lab.HOST, "/tmp/lock", release.lock)
        hosts.run(lab.HOST, before)
        began = time.monotonic()
        hosts.run(
            lab.HOST,
            f"{program} venv -q --python python3 {bare} && {program} pip sync -q --python {bare}/bin/python "
            "--require-hashes --only-binary :all: /tmp/lock",
        )
        seconds = time.monotonic() - began
        hosts.run(lab.HOST, f"rm -rf {bare}")
        return seconds

    for what, before in (("from uv's cache", "true"), ("downloaded", f"{program} cache clean -q")):
        measured = {"Slipway": partial(slipway, before), "uv": partial(sync, before)}
        yield _compared(f"a release, {what}", runs, measured, Goal("uv", 1.3))


def fetching(runs: int) -> Iterator[Comparison]:
    """A model of 1 GiB from a web server on the same machine, by a link of 1 Gbit/s: fetched, hashed, synced and put
    in place; and by curl, four files at once as well."""
    names = [f"model-{number:05}-of-{_SHARDS:05}.safetensors" for number in range(1, _SHARDS + 1)]
    files = {name: safetensors(name, _SHARD_BYTES) for name in names}
    index = {"weight_map": {name: name for name in names}}
    files |= {"config.json": b"{}", "model.safetensors.index.json": json.dumps(index).encode()}
    with serving() as hub, TemporaryDirectory(prefix="bench-", dir=CHECKOUT / ".lab") as folder:
        declared = {name: {"bytes": len(content), "sha256": sha256(content)} for name, content in files.items()}
        said = json.dumps({"model": "model", "source": {"revision": _REVISION}, "files": declared})
        hub.repositories["org/model", _REVISION] = files | {manifest.MANIFEST: said.encode()}
        port = int(hub.url.rpartition(":")[2])

        def slipway() -> float:
            aside = Path(folder, ".fetching-model")
            aside.mkdir()
            source = {"url": f"{url}/", "files": declared, "repository": None, "revision": None, "bytes": None}
            wish = {"model": "model", "file": "", "place": "url", "source": source}
            wish |= {"folder": f"{folder}/model", "user": getuser()}
            (aside / "instructions.json").write_text(json.dumps(wish))
            seconds = _timed(sys.executable, "-m", "roles.weights.fetch", str(aside))
            _run("rm", "-r", f"{folder}/model")
            return seconds

        def curl() -> float:
            outputs = [word for name in files for word in ("-o", f"{folder}/bare/{name}", f"{url}/{name}")]
            options = ["--silent", "--fail", "--create-dirs", "--parallel", "--parallel-max", "4"]
            seconds = _timed("curl", *options, *outputs)
            _run("rm", "-r", f"{folder}/bare")
            return seconds

        with lab.slow_link([port], rate=1e9 / 8) as [slow]:
            url = f"http://127.0.0.1:{slow}/files/org/model/{_REVISION}"
            yield _compared("1 GiB", runs, {"Slipway": slipway, "curl": curl}, Goal("curl", 1.1))


def _compared(what: str, runs: int, measured: Mapping[str, Callable[[], float]], goal: Goal) -> Comparison:
    seconds: dict[str, list[float]] = {name: [] for name in measured}
    for run in range(runs):
        for name, measure in measured.items():
            seconds[name].append(measure())
            print(f"{what}, run {run + 1} of {runs}, {name}: {seconds[name][-1]:.2f} s", flush=True)
    return Comparison(what, seconds, [goal])


def _timed(*command: str) -> float:
    began = time.monotonic()
    _run(*command)
    return time.monotonic() - began


def _run(*command: str) -> str:
    """What it prints. Raises Failed if it ends with an error."""
    done = subprocess.run(
        command,
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        env=as_a_user_has_it(),
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode:
        raise Failed(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout
