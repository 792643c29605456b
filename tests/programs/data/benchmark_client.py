"""Stands for sglang.benchmark.serving in the tests of the measuring program: the same two names, no server.

What it does in a round follows from FAKE_CLIENT: `steady`, `cold` (the first rounds are slower), `busy` (its event
loop computes all the time), `stalls`, `crashes`, `silent` (no result).
"""

import argparse
import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

BEHAVIOUR = os.environ["FAKE_CLIENT"]
DURATION = 0.16

calls = 0


async def benchmark() -> None:
    if BEHAVIOUR == "busy":
        end = time.perf_counter() + DURATION
        while time.perf_counter() < end:
            await asyncio.sleep(0)
    else:
        await asyncio.sleep(60 if BEHAVIOUR == "stalls" else DURATION)


def cli_main() -> None:
    global calls  # noqa: PLW0603 -- as the real client's state, it lives as long as the process
    calls += 1
    parser = argparse.ArgumentParser()
    parser.add_argument("--output-file", type=Path)
    parser.add_argument("--rust-client", action="store_true")
    options, _ = parser.parse_known_args(sys.argv[1:])
    print("what the client prints is not progress")
    if BEHAVIOUR == "crashes":
        raise ValueError("Warmup failed - Please make sure benchmark arguments are correctly specified.")
    if not options.rust_client:
        asyncio.run(benchmark())
    if BEHAVIOUR == "silent":
        return
    rate = 100.0 * (calls / 3 if BEHAVIOUR == "cold" and calls < 3 else 1)
    row: dict[str, Any] = {
        "server_info": {"api_key": "opensesame"},
        "request_rate": float("inf"),
        "duration": DURATION,
        "output_throughput": rate,
        "median_ttft_ms": 80.0,
        "median_tpot_ms": 10.0,
        "rust": options.rust_client,
    }
    options.output_file.write_text(json.dumps(row) + "\n")
