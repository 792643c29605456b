"""How far a starting server is, read from its log. Pure; the host program start.py uses it too: stdlib only."""

import re
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple


class Phase(IntEnum):
    """In the order in which SGLang goes through them."""

    STARTING = 0
    CONNECTING = 1
    WEIGHTS = 2
    KV_POOL = 3
    GRAPHS = 4
    BINDING = 5
    WARM_UP = 6
    READY = 7


_DOING: Final = {
    Phase.STARTING: "starting Python and SGLang",
    Phase.CONNECTING: "connecting the ranks",
    Phase.WEIGHTS: "loading weights",
    Phase.KV_POOL: "allocating the KV pool",
    Phase.GRAPHS: "compiling kernels and capturing graphs",
    Phase.BINDING: "loaded, binding its port",
    Phase.WARM_UP: "answering warm-up requests",
    Phase.READY: "ready",
}

# SGLang's own words: model_runner.py, model_executor/model_runner_components/cuda_graph_setup.py,
# entrypoints/engine.py and http_server.py of 0.5.23; the last one that fits a line counts.
_MARKS: Final = (
    (re.compile(r"Init (parallel|torch distributed) begin"), Phase.CONNECTING),
    (re.compile(r"Load weight begin"), Phase.WEIGHTS),
    (re.compile(r"Load weight end"), Phase.KV_POOL),
    (re.compile(r"Capture [\w -]+ graph begin|Running FlashInfer autotune"), Phase.GRAPHS),
    (re.compile(r"Engine startup timings|Started server process"), Phase.BINDING),
    (re.compile(r"Uvicorn running on"), Phase.WARM_UP),
    (re.compile(r"The server is fired up and ready to roll!"), Phase.READY),
)

# A tqdm bar: '…: 50% Completed | 8/16 [' while loading, '…: 89%|████ | 32/36 [' while capturing.
_BAR: Final = re.compile(r": +\d+%[^|]{0,40}\|(?:[^|]{0,200}\|)? *(?P<done>\d+)/(?P<total>\d+) \[")
_BARS: Final = (
    (re.compile(r"(?i:loading) .*(shards|safetensors)"), Phase.WEIGHTS, "files"),
    (re.compile(r"Capturing "), Phase.GRAPHS, "graphs"),
    (re.compile(r"DeepGEMM warmup"), Phase.GRAPHS, "kernels"),
)


class Progress(NamedTuple):
    """A phase and, where the log counts, how much of it is done."""

    phase: Phase = Phase.STARTING
    done: int = 0
    total: int = 0
    unit: str = ""

    def __str__(self) -> str:
        """E.g. 'loading weights, 12 of 64 files'."""
        count = f", {self.done} of {self.total} {self.unit}" if self.total else ""
        return _DOING[self.phase] + count

    def after(self, line: str) -> "Progress":
        """The progress once `line` was logged too. It never goes back: ranks log at their own pace."""
        current = self
        # A bar redraws itself with carriage returns, so that a line of the journal can hold many states.
        for part in line.split("\r"):
            current = current._after_part(part)
        return current

    def _after_part(self, part: str) -> "Progress":
        bar = _BAR.search(part)
        if bar is not None:
            for what, phase, unit in _BARS:
                if what.search(part, 0, bar.start()) and phase >= self.phase:
                    return Progress(phase, int(bar["done"]), int(bar["total"]), unit)
        reached = [phase for mark, phase in _MARKS if mark.search(part)]
        return Progress(reached[-1]) if reached and reached[-1] > self.phase else self


def progress(lines: Iterable[str]) -> Progress:
    """The progress that a log shows, journal of the unit or output of the server."""
    current = Progress()
    for line in lines:
        current = current.after(line)
    return current
