"""How long a server may take until it is ready. Pure."""

import math
from typing import Final, NamedTuple

ASSUMED_RATE: Final = 0.5e9
"""Bytes per second read from a disk that nobody has measured: what a SATA drive gives."""

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


class Deadline(NamedTuple):
    """How many seconds, and the sentence that explains them."""

    seconds: int
    sentence: str


class Start(NamedTuple):
    """What a server has to do until it is ready."""

    bytes_to_read: int
    """Size of the weights."""
    on_gpus: bool
    """It captures CUDA graphs, and may find the cache of compiled kernels empty."""
    limit: int | None = None
    """The user's own, in seconds."""

    def deadline(self, disk_rate: float | None = None) -> Deadline:
        """Rounded up to a whole minute. `disk_rate`: measured bytes per second, None if nobody measured."""
        if self.limit is not None:
            return Deadline(self.limit, f"{self.limit} s, as set")
        rate = disk_rate or ASSUMED_RATE
        parts = {
            "to start": _START,
            f"to read {self.bytes_to_read / 1e9:.1f} GB at half of {rate / 1e9:.1f} GB/s "
            f"({'measured' if disk_rate else 'assumed'})": math.ceil(self.bytes_to_read * _READ_MARGIN / rate),
            "for graphs": _GRAPHS if self.on_gpus else 0,
            "to compile kernels": _COMPILE if self.on_gpus else 0,
        }
        seconds = math.ceil(max(sum(parts.values()), _MINIMUM) / 60) * 60
        explained = ", ".join(f"{part} s {what}" for what, part in parts.items() if part)
        return Deadline(seconds, f"{seconds} s: {explained}")
