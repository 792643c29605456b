"""How long a server may take until it is ready. Pure."""

import math
from dataclasses import dataclass
from typing import Final

ASSUMED_RATE: Final = 1e9
"""Bytes per second read from a disk that nobody has measured: half of what one NVMe drive gives."""

_READ_MARGIN: Final = 2
"""A disk shared with others, or read in small pieces, gives half of what it gave alone."""

_START: Final = 120
"""Seconds for Python, SGLang's imports and the ranks to meet: 36 to 48 measured on an idle 16-core host."""

_GRAPHS: Final = 420
"""Seconds to capture CUDA graphs: 208 reported for eight RTX PRO 6000, twice that allowed."""

_COMPILE: Final = 900
"""Seconds to compile kernels into an empty cache: the largest (Marlin MoE) took 443 on one core."""

_MINIMUM: Final = 300
"""Seconds that even the smallest model gets: a loaded host is slow."""


@dataclass(frozen=True)
class Deadline:
    """For the unit's TimeoutStartSec, and the sentence that explains it."""

    seconds: int
    sentence: str


def deadline(
    bytes_to_read: int,
    disk_rate: float | None = None,
    *,
    graphs: bool = True,
    compile_kernels: bool = True,
    override: int | None = None,
) -> Deadline:
    """The deadline of a start, rounded up to a whole minute.

    `bytes_to_read`: size of the weights; `disk_rate`: measured bytes per second, None if nobody measured;
    `graphs`: CUDA graphs are captured; `compile_kernels`: the kernel cache may be empty;
    `override`: the user's own limit in seconds, taken as it is.
    """
    if override is not None:
        return Deadline(override, f"{override} s, as set")
    rate = disk_rate or ASSUMED_RATE
    reading = math.ceil(bytes_to_read * _READ_MARGIN / rate)
    parts = {
        "to start": _START,
        f"to read {bytes_to_read / 1e9:.1f} GB at half of {rate / 1e9:.1f} GB/s "
        f"({'measured' if disk_rate else 'assumed'})": reading,
        "for graphs": _GRAPHS if graphs else 0,
        "to compile kernels": _COMPILE if compile_kernels else 0,
    }
    seconds = math.ceil(max(sum(parts.values()), _MINIMUM) / 60) * 60
    explained = ", ".join(f"{part} s {what}" for what, part in parts.items() if part)
    return Deadline(seconds, f"{seconds} s: {explained}")
