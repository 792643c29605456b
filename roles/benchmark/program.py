"""The measuring program: runs on the host, by the release's own Python, alone. Standard library only.

    python -P program.py PLAN      PLAN is the JSON that `measuring.plan` makes

It imports SGLang's benchmark client once (that alone takes up to half a minute) and calls its command line
once per round, so that every figure is the one that `python -m sglang.benchmark.serving` prints. Meanwhile it
watches whether the client keeps up, and samples the GPUs. What it saw goes to the plan's `output`, one JSON
object a line, which ends with {"end": ...} unless the program was ended before.
"""

import asyncio
import contextlib
import importlib
import importlib.metadata
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGES = (
    *("sglang", "torch", "triton", "transformers", "flashinfer_python", "sglang-kernel", "sgl-deep-gemm"),
    *("nvidia-nccl-cu13", "nvidia-cutlass-dsl", "flash-attn", "flash-attn-4", "compressed-tensors"),
)

SECRET = re.compile(r"(api|access|secret|private)[-_]?key|password|secret|credential|[-_]token$|^token$", re.I)
"""Names of what must not leave the host."""
SECRET_OPTION = re.compile(r"(--[\w-]*(?:key|password|secret|token)(?:=|\s+))\S+", re.IGNORECASE)
"""The same in a command line that stands in a text."""

API_KEY = "OPENAI_API_KEY"
"""The variable in which SGLang's client looks for the server's key."""

BEAT = 0.05
"""Seconds between two looks at the client's event loop."""


class Watch:
    """How busy the client's event loop is, seen from inside it."""

    def __init__(self) -> None:
        self.beats: list[tuple[float, float, float, float]] = []  # elapsed, loop's CPU, process's CPU, delay

    def on(self, client: ModuleType) -> None:
        """Let the client's coroutine run beside a heartbeat from now on."""
        benchmark = client.benchmark

        async def watched(*args: Any, **kwargs: Any) -> Any:
            heart = asyncio.create_task(self._beat())
            try:
                return await benchmark(*args, **kwargs)
            finally:
                heart.cancel()

        client.benchmark = watched  # type: ignore[attr-defined]

    async def _beat(self) -> None:
        self.beats = []
        while True:
            asked = time.perf_counter()
            await asyncio.sleep(BEAT)
            now = time.perf_counter()
            self.beats.append((now, time.thread_time(), time.process_time(), now - asked - BEAT))

    def summary(self, duration: float) -> dict[str, Any] | None:
        """Over the last `duration` seconds, those that the client's row is about."""
        if not self.beats:
            return None
        beats = [beat for beat in self.beats if beat[0] >= self.beats[-1][0] - duration]
        first, last = beats[0], beats[-1]
        if len(beats) < 2:
            return None
        elapsed = last[0] - first[0]
        delays = sorted(beat[3] for beat in beats)
        return {
            "mode": "python",
            "loop_share": (last[1] - first[1]) / elapsed,
            "loop_delay_p99_ms": 1000 * delays[min(len(delays) - 1, int(0.99 * len(delays)))],
            "cpu_share": (last[2] - first[2]) / elapsed,
        }


class GpuSampler:
    """nvidia-smi, asked twice a second for as long as this program runs; silent where there is none."""

    QUERY = (
        *("index", "clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "utilization.gpu", "memory.used"),
        "clocks_event_reasons.active",
    )
    # https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html; idle (0x1) is left out
    REASONS = (
        (0x2, "application clocks"),
        (0x4, "software power cap"),
        (0x8, "hardware slowdown"),
        (0x10, "sync boost"),
        (0x20, "software thermal slowdown"),
        (0x40, "hardware thermal slowdown"),
        (0x80, "hardware power brake"),
        (0x100, "display clocks"),
    )

    def __init__(self) -> None:
        self.lines: list[tuple[float, str]] = []
        command = ["nvidia-smi", f"--query-gpu={','.join(self.QUERY)}"]
        command += ["--format=csv,noheader,nounits", "--loop-ms=500"]
        try:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except FileNotFoundError:
            return
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self.lines.append((time.monotonic(), line))

    def summary(self, since: float) -> list[dict[str, Any]]:
        """Each GPU since a time of time.monotonic()."""
        samples: dict[int, list[list[str]]] = {}
        for moment, line in self.lines:
            fields = [field.strip() for field in line.split(",")]
            if moment >= since and len(fields) == len(self.QUERY) and fields[0].isdigit():
                samples.setdefault(int(fields[0]), []).append(fields[1:])
        return [self._one(index, rows) for index, rows in sorted(samples.items())]

    def _one(self, index: int, rows: list[list[str]]) -> dict[str, Any]:
        columns = [
            [value for text in column if (value := _number(text)) is not None] for column in zip(*rows, strict=True)
        ]
        sm, memory_clock, power, temperature, utilization, used, _ = columns
        active = [_bits(row[-1]) for row in rows]
        shares = {name: sum(bool(bits & bit) for bits in active) / len(rows) for bit, name in self.REASONS}
        return {
            "index": index,
            "samples": len(rows),
            "sm_clock_mhz": _median(sm),
            "memory_clock_mhz": _median(memory_clock),
            "power_w": _median(power),
            "temperature_c": max(temperature, default=None),
            "utilization_percent": _median(utilization),
            "memory_used_mib": max(used, default=None),
            "throttled": {name: share for name, share in shares.items() if share},
        }

    def stop(self) -> None:
        if process := getattr(self, "_process", None):
            process.terminate()
            process.wait()


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _bits(text: str) -> int:
    return int(text, 16) if re.fullmatch(r"0x[0-9a-fA-F]+", text) else 0


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


class Measurement:
    """The rounds of one plan, and the file that they are written to."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.directory = Path(plan["output"]).parent
        self.rows = self.directory / "client.jsonl"
        self.log = self.directory / "client.log"
        self.log.write_text("")
        self.output = Path(plan["output"]).open("w", encoding="utf-8")  # noqa: SIM115 -- as long as the program
        self.watch = Watch()
        self.gpus = GpuSampler()
        self.overtaxed: set[tuple[str, int]] = set()

    def write(self, entry: dict[str, Any]) -> None:
        self.output.write(json.dumps(entry) + "\n")
        self.output.flush()

    def run(self) -> None:
        print("loading SGLang's benchmark client", flush=True)
        with self._quiet():
            client = importlib.import_module(self.plan["module"])
        self.watch.on(client)
        if key := credential("admin-key"):
            client.flush_server_cache = with_key(key, client.flush_server_cache)  # type: ignore[attr-defined]
        self.write({"environment": environment(self.plan["base_url"])})
        for series in self.plan["warm_ups"]:
            self._warm_up(client, series)
        for place, entry in enumerate(self.plan["rounds"], start=1):
            _progress(self._round(client, entry), f"{place} of {len(self.plan['rounds'])}: repeat")
        self.gpus.stop()
        self.write({"end": "complete", "server": server_info(self.plan["base_url"])})

    def _warm_up(self, client: ModuleType, series: list[dict[str, Any]]) -> None:
        """Rounds until the last two agree, or the series is used up."""
        rates: list[float] = []
        for entry in series:
            row = self._round(client, entry)
            _progress(row, "warm-up")
            rates.append(row["result"]["output_throughput"])
            if len(rates) > 1 and abs(rates[-1] - rates[-2]) <= self.plan["agreement"] * max(rates[-2:]):
                return

    def _round(self, client: ModuleType, entry: dict[str, Any]) -> dict[str, Any]:
        """One round; once more in Rust mode if the Python client could not keep up. Ends the program on an error."""
        point = entry["round"]["point"]
        key = (point["traffic"], point["concurrency"])
        if key not in self.overtaxed:
            row = self._call(client, entry, "python")
            share = (row["client"] or {}).get("loop_share", 0)
            if share < self.plan["busy_client"] or not entry["rust_arguments"]:
                self.write(row)
                return row
            self.write({**row, "judged": False})
            self.overtaxed.add(key)
        row = self._call(client, entry, "rust")
        self.write(row)
        return row

    def _call(self, client: ModuleType, entry: dict[str, Any], mode: str) -> dict[str, Any]:
        row: dict[str, Any] = {
            "round": entry["round"],
            "judged": entry["round"]["phase"] == "measured",
            "started": datetime.now(UTC).isoformat(),
        }
        start, processor = time.monotonic(), time.process_time()
        self.rows.write_text("")
        stalled = threading.Timer(self.plan["round_limit"], self._give_up, [row, start])
        stalled.daemon = True
        stalled.start()
        try:
            arguments = entry["arguments"] if mode == "python" else entry["rust_arguments"]
            with self._quiet(), _command_line(self.plan["module"], arguments):
                client.cli_main()
        except (Exception, SystemExit) as error:
            stalled.cancel()
            self._fail(row, start, f"the client ended: {_cause(error)}")
        finally:
            stalled.cancel()
        seconds = time.monotonic() - start
        text = self.rows.read_text()
        if not text.strip():
            self._fail(row, start, "the client wrote no result")
        result = json.loads(text)
        result.pop("server_info", None)
        used = {"mode": mode, "cpu_share": (time.process_time() - processor) / seconds}
        watched = self.watch.summary(result["duration"]) if mode == "python" else None
        return {
            **row,
            "seconds": seconds,
            "result": result,
            "client": watched or used,
            "gpus": self.gpus.summary(start),
        }

    def _fail(self, row: dict[str, Any], start: float, error: str) -> None:
        """Write the round that failed and end the program: what comes after it could prove nothing."""
        self.write({**row, "judged": True, "seconds": time.monotonic() - start, "error": error})
        tail = self.log.read_text(errors="replace").splitlines()[-30:]
        self.write({"end": error, "log": tail, "server": {}})
        print(f"a round failed: {error}", file=sys.__stdout__, flush=True)  # stdout itself may still be the log
        self.gpus.stop()
        os._exit(1)  # also from the timer's thread, and past whatever the client left running

    def _give_up(self, row: dict[str, Any], start: float) -> None:
        self._fail(row, start, f"stalled: no end after {self.plan['round_limit']} seconds")

    @contextlib.contextmanager
    def _quiet(self) -> Iterator[None]:
        """Send what the client prints to a log: progress is for this program to show."""
        with self.log.open("a", buffering=1) as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            yield


def _progress(row: dict[str, Any], kind: str) -> None:
    point, result = row["round"]["point"], row["result"]
    print(
        f"{kind} {row['round']['number']}, {point['traffic']} C={point['concurrency']}: "
        f"{result['output_throughput']:.1f} tok/s, TTFT {result['median_ttft_ms']:.0f} ms, "
        f"TPOT {result['median_tpot_ms']:.1f} ms",
        flush=True,
    )


@contextlib.contextmanager
def _command_line(module: str, arguments: list[str]) -> Iterator[None]:
    before = sys.argv
    sys.argv = [module, *arguments]
    try:
        yield
    finally:
        sys.argv = before


def _cause(error: BaseException) -> str:
    lines = "".join(traceback.format_exception_only(error)).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def environment(base_url: str) -> dict[str, Any]:
    """What was measured, and on what."""
    query = "name,driver_version,memory.total,power.limit,clocks.max.sm,pcie.link.gen.max,pcie.link.width.max"
    names = [name.replace(".", "_") for name in query.split(",")]
    gpus = _output(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]).splitlines()
    return {
        "machine": machine(),
        "gpus": [dict(zip(names, (field.strip() for field in line.split(",")), strict=False)) for line in gpus],
        "topology": _output(["nvidia-smi", "topo", "-m"]),
        "packages": packages(),
        "server": server_info(base_url),
    }


def machine() -> dict[str, str]:
    """The host without its GPUs."""
    processor = re.search(r"^model name\s*: (.*)$", _file("/proc/cpuinfo"), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+) kB", _file("/proc/meminfo"), re.MULTILINE)
    return {
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", ""),
        "kernel": platform.release(),
        "processor": processor[1] if processor else platform.machine(),
        "cores": str(os.cpu_count()),
        "memory_gib": str(round(int(memory[1]) / 2**20)) if memory else "",
        "governor": _file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip(),
    }


def packages() -> dict[str, str]:
    """Versions of what decides speed, and the CUDA that torch was built for."""
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    torch = sys.modules.get("torch")
    return {**found, "cuda": str(getattr(getattr(torch, "version", None), "cuda", ""))}


def server_info(base_url: str) -> dict[str, Any]:
    """What the server says of itself; {} where it cannot be asked."""
    import urllib.request  # here, because a controller imports this file for `without_secrets` alone

    request = urllib.request.Request(f"{base_url}/server_info")
    if key := os.environ.get(API_KEY):
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            info = json.load(response)
    except (OSError, ValueError):
        return {}
    return dict(without_secrets(info)) if isinstance(info, dict) else {}


def without_secrets(value: Any) -> Any:
    """`value` without what its names say is a key, a password or a token, nor that anywhere in its texts.

    The server tells its command line as one text, in which the key stands again.
    """
    return _redacted(value, set(_secrets(value)))


def _secrets(value: Any) -> Iterator[str]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        if isinstance(item, str) and item and SECRET.search(str(name)):
            yield item
        yield from _secrets(item)


def _redacted(value: Any, secrets: set[str]) -> Any:
    if isinstance(value, dict):
        return {
            name: "(redacted)" if item and SECRET.search(name) else _redacted(item, secrets)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_redacted(item, secrets) for item in value]
    if isinstance(value, str):
        for secret in sorted(secrets, key=len, reverse=True):
            value = value.replace(secret, "(redacted)")
        return SECRET_OPTION.sub(r"\1(redacted)", value)
    return value


def credential(name: str) -> str:
    """The server's key of this name, among the credentials that systemd gave this program; empty if it has none."""
    return _file(f"{os.environ.get('CREDENTIALS_DIRECTORY', '/nonexistent')}/{name}").strip()


def with_key(key: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """`call` with another key than the client's own: a server with an admin key takes no other for administration."""

    def called(*arguments: Any, **named: Any) -> Any:
        before = os.environ[API_KEY]
        os.environ[API_KEY] = key
        try:
            return call(*arguments, **named)
        finally:
            os.environ[API_KEY] = before

    return called


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _file(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if key := credential("api-key"):
        os.environ[API_KEY] = key
    Measurement(plan).run()


if __name__ == "__main__":
    main()
