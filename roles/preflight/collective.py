"""Do the GPUs exchange right values, and in time? This file is sent to a host and run by the release's Python.

    python collective.py BACKEND RANKS SECONDS

starts RANKS processes, which all-reduce and all-to-all known values over BACKEND (nccl, or gloo on CPUs) in the
environment that it is given, and prints one JSON document: {"problem": "" or a clause, "measured": [{"collective",
"bytes", "microseconds", "bus_gb_s"}]}. All processes are gone after SECONDS, whatever hangs.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

SIZES = (64 * 2**10, 64 * 2**20)
"""Bytes of each rank: about what one decode step and one prefill chunk exchange."""

REPEATS = 5

Said = queue.Queue[tuple[int, dict[str, Any] | None]]
"""What ranks say: which, and what; None at its end."""


def main(backend: str, ranks: int, seconds: float) -> None:
    """Start the ranks, watch them, and print what became of them."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, backend, str(ranks), str(seconds), f"file://{folder}/rendezvous"]
        print(json.dumps(supervise([[*command, str(rank)] for rank in range(ranks)], seconds)))


def supervise(commands: Sequence[Sequence[str]], seconds: float) -> dict[str, Any]:
    """Run one process for each rank until all have succeeded, one has failed, or the time is up."""
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        for command in commands
    ]
    said: Said = queue.Queue()
    listeners = [
        threading.Thread(target=_listen, args=(rank, process, said), daemon=True)
        for rank, process in enumerate(processes)
    ]
    for listener in listeners:
        listener.start()
    try:
        return _watch(said, len(commands), time.monotonic() + seconds, seconds)
    finally:
        for process, listener in zip(processes, listeners, strict=True):
            _kill(process)
            listener.join(timeout=5)


def _listen(rank: int, process: subprocess.Popen[str], said: Said) -> None:
    """Pass on what a rank says, line by line, and at last None; if it fails, the last of its other words."""
    assert process.stdout
    other = ""
    with process.stdout:
        for line in process.stdout:
            if line.startswith("{"):
                said.put((rank, json.loads(line)))
            else:
                other = line.strip() or other
    if process.wait():
        said.put((rank, {"error": other[:300] or f"exit status {process.returncode}"}))
    said.put((rank, None))


def _watch(said: Said, ranks: int, deadline: float, seconds: float) -> dict[str, Any]:
    doing = dict.fromkeys(range(ranks), "starting")
    measured: list[dict[str, Any]] = []
    running = set(range(ranks))
    while running:
        try:
            rank, words = said.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            late = {step: [rank for rank in sorted(running) if doing[rank] == step] for step in doing.values()}
            where = "; ".join(f"{_names(waiting)} in {step}" for step, waiting in late.items() if waiting)
            return {"problem": f"not finished after {seconds:.0f} s: {where}", "measured": measured}
        if words is None:
            running.discard(rank)
        elif "error" in words:
            return {"problem": f"rank {rank} failed in {doing[rank]}: {words['error']}", "measured": measured}
        elif "wrong" in words:
            return {
                "problem": f"rank {rank} got wrong values in {doing[rank]}: {words['wrong']}",
                "measured": measured,
            }
        elif "doing" in words:
            doing[rank] = words["doing"]
        elif rank == 0:
            measured.append(words)
    return {"problem": "", "measured": measured}


def _names(ranks: Iterable[int]) -> str:
    return "ranks " + ", ".join(map(str, ranks))


def _kill(process: subprocess.Popen[str]) -> None:
    """End a rank and all that it started; one that waits inside the driver is left to the kernel."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=5)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass


# One rank


def rank_main(backend: str, ranks: int, seconds: float, rendezvous: str, rank: int) -> None:
    """Exchange values with the other ranks, and say what is being done, measured, or wrong."""
    signal.alarm(int(seconds) + 5)  # ends this process even if nobody is left who would
    import torch
    import torch.distributed as dist

    _say(doing="joining the others")
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, init_method=rendezvous, rank=rank, world_size=ranks)
    for name, exchange, share in (("all-reduce", _all_reduce, 2.0), ("all-to-all", _all_to_all, 1.0)):
        for size in SIZES:
            _say(doing=f"{name} of {size // 2**10} KiB")
            took = []
            for _ in range(REPEATS):
                tensor, wanted, run = exchange(torch, dist, device, rank, ranks, size // 4)
                dist.barrier()
                start = time.perf_counter()
                run()
                if device.type == "cuda":
                    torch.cuda.synchronize()
                took.append(time.perf_counter() - start)
                _check(torch, tensor, wanted)
            best = min(took)
            # As nccl-tests define it: what the slowest link carries, whatever the number of ranks.
            bus = share * (ranks - 1) / ranks * size / best / 1e9
            _say(collective=name, bytes=size, microseconds=round(best * 1e6, 1), bus_gb_s=round(bus, 2))
    dist.destroy_process_group()


def _all_reduce(
    torch: Any, dist: Any, device: Any, rank: int, ranks: int, count: int
) -> tuple[Any, Any, Callable[[], Any]]:
    """Small whole numbers, so that their sum is exact in any order."""
    pattern = torch.arange(count, device=device, dtype=torch.float32) % 251
    tensor = pattern * (rank + 1)
    return tensor, pattern * (ranks * (ranks + 1) // 2), lambda: dist.all_reduce(tensor)


def _all_to_all(
    torch: Any, dist: Any, device: Any, rank: int, ranks: int, count: int
) -> tuple[Any, Any, Callable[[], Any]]:
    """Each part says where it came from and where it goes."""
    part = count // ranks
    peers = torch.arange(ranks, device=device, dtype=torch.float32).repeat_interleave(part)
    received = torch.zeros_like(peers)
    sent = rank * 1000 + peers
    return received, peers * 1000 + rank, lambda: dist.all_to_all_single(received, sent)


def _check(torch: Any, found: Any, wanted: Any) -> None:
    different = torch.nonzero(found != wanted).flatten()
    if len(different):
        first = int(different[0])
        values = f"element {first} of {len(wanted)} is {float(found[first])}, not {float(wanted[first])}"
        _say(wrong=f"{values}, and {len(different) - 1} more differ")
        sys.exit()


def _say(**words: object) -> None:
    print(json.dumps(words), flush=True)


if __name__ == "__main__":
    given = sys.argv[1:]
    if len(given) == 3:
        main(given[0], int(given[1]), float(given[2]))
    else:
        rank_main(given[0], int(given[1]), float(given[2]), given[3], int(given[4]))
