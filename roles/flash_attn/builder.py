"""Build, prove and install flash-attn on a host. This file is sent there and run by the host's own Python:
standard library only.

    python3 builder.py FOLDER

FOLDER holds instructions.json, source.txt and tools.txt (locks). It can be killed at any moment and run again:
compiled objects stay in FOLDER, a wheel is kept by one rename, only a proved one enters the release, and RECORD
is written into the release last. What it prints is shown as progress.
"""

import base64
import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

JOB_GIB = 7.0
"""Memory of one nvcc on one file for one architecture; 6.9 measured for the backward pass, head dimension 256."""

RESERVE_GIB = 4.0
"""Left to the rest of the host, or a tenth of the memory if that is more."""

RECORD = "flash-attn.json"
"""In the release: what was installed and proved."""

PROGRESS = re.compile(r"^\[(\d+)/(\d+)\]")
"""How ninja counts."""


def main(folder: Path) -> None:
    instructions = json.loads((folder / "instructions.json").read_text())
    release = Path(instructions["release"])
    yield_to_others()
    check_flash_attn_4(release)
    tools = install_tools(folder)
    kept = Path(instructions["kept"])
    wheel = next(kept.glob("*.whl"), None)
    if wheel is None:
        made = fetch(folder, instructions) if instructions["wheel"] else build(folder, tools, release, instructions)
        wheel = keep(made, kept)
    else:
        say(f"using the wheel that is kept in {kept}")
    prove(wheel, folder, release, instructions)
    install(wheel, tools, release)
    record = release / RECORD
    record.with_suffix(".new").write_text(instructions["record"] + "\n")
    record.with_suffix(".new").replace(record)
    shutil.rmtree(folder)
    say(f"flash-attn is in release {release.name}")


def yield_to_others() -> None:
    """If memory runs short all the same, the compiler is killed first; and a running server is not slowed down."""
    Path("/proc/self/oom_score_adj").write_text("1000")
    os.nice(10)


# How many compilers at once


def workers(cores: int, available_gib: float, limits_gib: Iterable[float] = ()) -> int:
    """How many files to compile at once.

    `available_gib` is the host's free memory, `limits_gib` what each control group around this process has left.
    Exits if there is not memory for one.
    """
    memory = min([available_gib, *limits_gib])
    usable = memory - max(RESERVE_GIB, memory / 10)
    if usable < JOB_GIB:
        sys.exit(
            f"{memory:.0f} GiB of memory are free, expected {JOB_GIB + RESERVE_GIB:.0f} to compile flash-attn: stop "
            "what uses the memory, or set `flash_attn: wheel` or `off`."
        )
    return min(cores, int(usable / JOB_GIB))


def free_memory() -> float:
    """GiB that the kernel can give without swapping."""
    found = re.search(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(found[1]) / 2**20 if found else 0.0


def group_limits(groups: str, root: Path) -> list[float]:
    """GiB left in each control group around a process: `groups` is its /proc/PID/cgroup, `root` /sys/fs/cgroup."""
    limits = []
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        base = root / controllers
        names = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else ("memory.max", "memory.current")
        )
        folder = base / path.lstrip("/")
        for group in (folder, *folder.parents):
            limit, usage = (_number(group / name) for name in names)
            if limit is not None and usage is not None:
                limits.append((limit - usage) / 2**30)
            if group == base:
                break
    return limits


def _number(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


# Making a wheel


def install_tools(folder: Path) -> Path:
    """A virtual environment with pip and wheel, which a release does not have. Returns the folder."""
    tools = folder / "tools"
    if not (tools / "COMPLETE").exists():
        shutil.rmtree(tools, ignore_errors=True)
        run([sys.executable, "-m", "venv", tools])
        lock: list[str | Path] = ["--require-hashes", "--requirement", folder / "tools.txt"]
        run([tools / "bin/pip", "install", "--quiet", "--no-deps", *lock, "--target", tools / "wheel"])
        (tools / "COMPLETE").touch()
    return tools


def fetch(folder: Path, instructions: Mapping[str, Any]) -> Path:
    """The given wheel, checked against its hash."""
    address: str = instructions["wheel"]
    say(f"fetching {address}")
    wheel = folder / "fetched" / address.rsplit("/", 1)[-1]
    wheel.parent.mkdir(exist_ok=True)
    if address.startswith("/"):
        shutil.copyfile(address, wheel)
    else:
        with urllib.request.urlopen(address, timeout=60) as answer, wheel.open("wb") as file:
            shutil.copyfileobj(answer, file)
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != instructions["wheel_sha256"]:
        sys.exit(
            f"{address} has SHA-256 {found}, expected {instructions['wheel_sha256']}: correct "
            "`flash_attn_wheel_sha256`, or find out who changed the file."
        )
    return wheel


def build(folder: Path, tools: Path, release: Path, instructions: Mapping[str, Any]) -> Path:
    """Compile the locked source in the release's environment; what an interrupted run compiled is used."""
    python = release / "bin/python"
    environment = {
        **os.environ,
        "PYTHONPATH": str(tools / "wheel"),
        "PATH": f"{release}/bin:{instructions['cuda_home']}/bin:{os.environ['PATH']}",
        "CUDA_HOME": instructions["cuda_home"],
        "FLASH_ATTENTION_FORCE_BUILD": "TRUE",  # never a wheel from the network
        "FLASH_ATTN_CUDA_ARCHS": instructions["architecture"],
        "NVCC_THREADS": "1",  # more only help with several architectures, and each needs as much memory
        **instructions["environment"],
    }
    if "MAX_JOBS" not in environment:
        limits = group_limits(Path("/proc/self/cgroup").read_text(), Path("/sys/fs/cgroup"))
        environment["MAX_JOBS"] = str(workers(os.cpu_count() or 1, free_memory(), limits))
    source = unpack_source(folder, tools, python, environment)
    say(f"compiling for sm_{instructions['architecture']}, {environment['MAX_JOBS']} files at once")
    shutil.rmtree(folder / "dist", ignore_errors=True)
    compile_source(source, [str(python), "setup.py", "bdist_wheel", "--dist-dir", str(folder / "dist")], environment)
    return next((folder / "dist").glob("*.whl"))


def unpack_source(folder: Path, tools: Path, python: Path, environment: Mapping[str, str]) -> Path:
    """Download the source once, against its hash, and return its folder."""
    source = folder / "source"
    if not source.exists():
        say("downloading the source")
        download: list[str | Path] = [tools / "bin/pip", "--python", python, "download", "--quiet", "--no-cache-dir"]
        download += ["--no-deps", "--no-build-isolation", "--no-binary", ":all:", "--dest", folder / "sdist"]
        run([*download, "--require-hashes", "--requirement", folder / "source.txt"], environment)
        unpacked = folder / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)
        shutil.unpack_archive(next((folder / "sdist").glob("*.tar.gz")), unpacked)
        next(unpacked.iterdir()).rename(source)
    return source


def compile_source(source: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run the build; show how many files are done, and its last lines if it fails."""
    last: list[str] = []
    with subprocess.Popen(
        command, cwd=source, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout
        for line in process.stdout:
            last = [*last[-40:], line]
            if progress := PROGRESS.match(line):
                say(f"compiled {progress[1]} of {progress[2]} files")
    if process.returncode:
        sys.exit("".join(last) + "flash-attn could not be compiled: its last lines are above.")


def keep(wheel: Path, kept: Path) -> Path:
    """Put a wheel into the folder that it is kept in, in one step, without the files that are flash-attn 4's.

    flash-attn 2.8.3 brings an old copy of flash_attn/cute, which would overwrite the one of flash-attn 4.
    """
    kept.parent.mkdir(parents=True, exist_ok=True)
    new = kept.with_name(f".{kept.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(new / wheel.name, "w", zipfile.ZIP_DEFLATED) as stripped:
        for entry in old.infolist():
            data = old.read(entry)
            if entry.filename.startswith("flash_attn/cute/"):
                continue
            if entry.filename.endswith(".dist-info/RECORD"):
                lines = data.decode().splitlines(keepends=True)
                data = "".join(line for line in lines if not line.startswith("flash_attn/cute/")).encode()
            stripped.writestr(entry, data)
    shutil.rmtree(kept, ignore_errors=True)
    new.rename(kept)
    return kept / wheel.name


# Proof


def prove(wheel: Path, folder: Path, release: Path, instructions: Mapping[str, Any]) -> None:
    """Exit unless the wheel has code for the host's GPUs and loads into the release's Python beside its torch."""
    say(f"proving {wheel.name}")
    unpacked = folder / "proof"
    shutil.rmtree(unpacked, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    libraries = list(unpacked.glob("flash_attn_2_cuda*.so"))
    if not libraries:
        reject(wheel, "has no compiled code", f"code for sm_{instructions['architecture']}")
    listing = output([cuobjdump(release, instructions["cuda_home"]), "--list-elf", libraries[0]])
    found = sorted(set(re.findall(r"\.(sm_\d+[af]?)\.", listing)))
    if not any(name.rstrip("af") == f"sm_{instructions['architecture']}" for name in found):
        reject(wheel, f"has code for {', '.join(found) or 'no GPU'}", f"code for sm_{instructions['architecture']}")
    # Python resolves every symbol of a module when it loads it: another torch's ABI fails here.
    loaded = subprocess.run(
        [release / "bin/python", "-c", "import torch, flash_attn_2_cuda"],
        env={**os.environ, "PYTHONPATH": str(unpacked)},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    if loaded.returncode:
        last = (loaded.stderr.strip().splitlines() or ["no reason given"])[-1]
        reject(wheel, f"does not load beside the release's torch ({last[:300]})", "the ABI of that torch")


def reject(wheel: Path, found: str, expected: str) -> None:
    """Throw the wheel away and end: it has not entered the release."""
    shutil.rmtree(wheel.parent)
    sys.exit(
        f"{wheel.name} {found}, expected {expected}: it is not installed; look at the build's output, or set "
        "`flash_attn: off`, as SGLang does not need it."
    )


def cuobjdump(release: Path, cuda_home: str) -> Path:
    """The toolkit's, or the one that Triton brings, as PyPI's nvcc has none."""
    own = Path(cuda_home, "bin/cuobjdump")
    return (
        own if own.exists() else next(release.glob("lib/python3*/site-packages/triton/backends/nvidia/bin/cuobjdump"))
    )


def check_flash_attn_4(release: Path) -> None:
    """Exit unless every file of flash-attn 4 in the release is the one that was installed."""
    packages = next(release.glob("lib/python3*/site-packages"))
    for record in packages.glob("flash_attn_4-*.dist-info/RECORD"):
        damaged = [name for name, digest in hashes(record) if not is_intact(packages / name, digest)]
        if damaged:
            sys.exit(
                f"{damaged[0]} and {len(damaged) - 1} more files of flash-attn 4 are not as installed, expected "
                f"RECORD's hashes: remove {release} and deploy again."
            )


def hashes(record: Path) -> list[tuple[str, str]]:
    """Name and `sha256=…` of each file in a RECORD that has a hash."""
    with record.open(newline="") as file:
        return [(row[0], row[1]) for row in csv.reader(file) if len(row) > 1 and row[1].startswith("sha256=")]


def is_intact(file: Path, digest: str) -> bool:
    if not file.is_file():
        return False
    found = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).rstrip(b"=").decode()
    return digest == f"sha256={found}"


# The release


def install(wheel: Path, tools: Path, release: Path) -> None:
    """Add the proved wheel to the release, and take it out again if the release is not right with it."""
    pip: list[str | Path] = [tools / "bin/pip", "--python", release / "bin/python"]
    run([*pip, "install", "--quiet", "--no-deps", "--no-index", "--force-reinstall", wheel])
    try:
        check_flash_attn_4(release)
        run([release / "bin/python", "-c", "import flash_attn, flash_attn.cute"])
    except SystemExit:
        run([*pip, "uninstall", "--quiet", "--yes", "flash-attn"])
        raise


def run(command: Iterable[str | Path], environment: Mapping[str, str] | None = None) -> None:
    """Run a command that must succeed; it has said itself why it does not."""
    words = [str(word) for word in command]
    if subprocess.run(words, env=environment, cwd="/", check=False).returncode:
        sys.exit(f"failed: {' '.join(words)}")


def output(command: Iterable[str | Path]) -> str:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False).stdout


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
