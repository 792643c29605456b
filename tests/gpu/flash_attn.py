"""flash-attn built on this machine by the product's own builder, with an eye on every compiler:

`python -m tests.gpu.flash_attn RELEASE CUDA_HOME FOLDER`, all of them folders. The wheel is kept where the product
keeps it, and a second call only proves it; with `--attention` it must also compute what torch computes. RELEASE is
not changed: how a wheel enters it beside flash-attn 4 is proved by tests/unit.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from roles.flash_attn import builder
from roles.flash_attn.settings import FlashAttnSettings
from roles.flash_attn.wheels import KEPT, Release, architecture, key, lock_of, versions
from tests.gpu import attention, gpus

PERIOD: Final = 0.5
"""Seconds between two looks at the compilers."""
_FILE: Final = re.compile(rb"(flash_\w+?)_sm80")
_SIZES: Final = re.compile(r"^(VmHWM|VmRSS):\s+(\d+) kB", re.MULTILINE)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.flash_attn", description=__doc__.splitlines()[0])
    for name in ("release", "cuda_home", "folder"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--attention", action="store_true", help="let the wheel compute on the GPU")
    arguments = parser.parse_args(words)
    folder, release, cuda_home = arguments.folder, arguments.release, str(arguments.cuda_home)
    made_for = architecture(gpus.hardware().compute_capability)
    found = subprocess.run(
        ["sh", "-c", versions(str(release), cuda_home)], stdout=subprocess.PIPE, text=True, check=True
    )
    fits = Release.read(found.stdout.splitlines())
    if made_for is None or fits is None:
        sys.exit(f"expected a GPU that flash-attn has code for, and a release: {found.stdout}")
    version = FlashAttnSettings().attn_version
    kept = Path(KEPT, key(version, fits, made_for))
    instructions = {"cuda_home": cuda_home, "architecture": made_for, "environment": {}}
    folder.mkdir(parents=True, exist_ok=True)
    builder.yield_to_others()
    wheel = next(kept.glob("*.whl"), None) or _built(folder, release, instructions, version, kept)
    builder.prove(wheel, folder, release, instructions)
    print(f"proved {kept.name}: {wheel.name}, {wheel.stat().st_size / 2**20:.1f} MiB", flush=True)
    if arguments.attention:
        _computed(release, folder / "proof")
    return 0


def _built(folder: Path, release: Path, instructions: Mapping[str, object], version: str, kept: Path) -> Path:
    (folder / "source.txt").write_text(lock_of(version), encoding="utf-8")
    (folder / "tools.txt").write_text(lock_of("tools"), encoding="utf-8")
    began = time.monotonic()
    tools = builder.install_tools(folder)
    with watched() as compilers:
        made = builder.build(folder, tools, release, instructions)
    wheel = builder.keep(made, kept)
    print(f"built in {time.monotonic() - began:.0f} s; {compilers}", flush=True)
    (folder / "compilers.json").write_text(json.dumps(compilers.files, indent=1), encoding="utf-8")
    return wheel


def _computed(release: Path, packages: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    subprocess.run([release / "bin/python", attention.__file__], env=environment, check=True)


@dataclass
class Compilers:
    """What the compilers of flash-attn needed; GiB."""

    files: dict[str, float] = field(default_factory=dict)
    """The largest process of each source file."""
    at_once: int = 0
    """Most files in work at a time."""
    together: float = 0.0
    """Most memory of all compilers at a time."""
    least_free: float = float("inf")

    def look(self) -> None:
        now, working = 0.0, set()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                file = _FILE.search((process / "cmdline").read_bytes())
                sizes = dict(_SIZES.findall((process / "status").read_text())) if file else {}
            except OSError:  # it has ended
                continue
            if not file or len(sizes) < 2:
                continue
            name = file[1].decode()
            working.add(name)
            now += int(sizes["VmRSS"]) / 2**20
            self.files[name] = round(max(self.files.get(name, 0.0), int(sizes["VmHWM"]) / 2**20), 2)
        self.at_once = max(self.at_once, len(working))
        self.together = max(self.together, now)
        self.least_free = min(self.least_free, builder.free_memory())

    def __str__(self) -> str:
        largest = sorted(self.files.items(), key=lambda item: -item[1])[:5]
        named = ", ".join(f"{name} {gib} GiB" for name, gib in largest)
        return (
            f"{len(self.files)} files, at most {self.at_once} at once with {self.together:.1f} GiB together, "
            f"{self.least_free:.1f} GiB left at least; largest: {named}"
        )


@contextmanager
def watched() -> Iterator[Compilers]:
    """Look at all compilers of this machine until the block ends."""
    compilers, over = Compilers(), threading.Event()

    def watch() -> None:
        while not over.wait(PERIOD):
            compilers.look()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield compilers
    finally:
        over.set()
        watcher.join()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
