"""Says what a folder of weights holds, as JSON: `python3 read_checkpoint.py FOLDER`.

It runs on the host with the standard library alone, and reads the headers of the safetensors files, a few MB of
hundreds of GB. Tensors that differ only in the numbers of layer and expert are counted together.
"""

import json
import re
import struct
import sys
from pathlib import Path
from typing import Any

HEADER_LIMIT = 100_000_000
"""Bytes; a longer header is no header (safetensors' own limit)."""

DESCRIPTIONS = ("config.json", "hf_quant_config.json")


def main(folder: Path) -> None:
    """Print the description of `folder`; what is wrong with a file stands under `problems`."""
    found: dict[str, Any] = {"folder": str(folder), "files": {}, "bytes": 0, "tensors": {}, "problems": []}
    try:
        files = sorted(folder.iterdir())
    except OSError as error:
        found["problems"].append(f"{folder}: cannot be read: {error.strerror}")
        files = []
    for file in files:
        try:
            if file.name in DESCRIPTIONS:
                found["files"][file.name] = json.loads(file.read_text(encoding="utf-8"))
            elif file.suffix == ".safetensors":
                found["bytes"] += file.stat().st_size
                count(file, found["tensors"])
        except (OSError, ValueError) as error:
            found["problems"].append(f"{file}: {error}")
    json.dump(found, sys.stdout)


def count(file: Path, tensors: dict[str, dict[str, int]]) -> None:
    """Add the tensors of one safetensors file, by pattern and type. Raises ValueError if it is incomplete."""
    size = file.stat().st_size
    with file.open("rb") as content:
        start = content.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= length <= min(HEADER_LIMIT, size - 8):
            raise ValueError("truncated, or no safetensors file: it has no complete header")
        header = json.loads(content.read(length))
    header.pop("__metadata__", None)
    end = 8 + length + max((tensor["data_offsets"][1] for tensor in header.values()), default=0)
    if size < end:
        raise ValueError(f"truncated: it has {size} of {end} bytes")
    for name, tensor in header.items():
        pattern = re.sub(r"(?<=\.)\d+(?=\.)", "N", name)
        entry = tensors.setdefault(f"{pattern} {tensor['dtype']}", {"count": 0, "bytes": 0})
        entry["count"] += 1
        entry["bytes"] += tensor["data_offsets"][1] - tensor["data_offsets"][0]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
