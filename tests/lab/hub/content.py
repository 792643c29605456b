"""Files of a model that is small, whole, and no model that anything could serve."""

import json
import random
import struct


def model_files(seed: int = 0, size: int = 20_000) -> dict[str, bytes]:
    """Files by name: two shards of `size` bytes of weights each with their index, and small files around them."""
    shards = {f"model-0000{number}-of-00002.safetensors": f"layer.{number}.weight" for number in (1, 2)}
    index = {"metadata": {"total_size": 2 * size}, "weight_map": {tensor: name for name, tensor in shards.items()}}
    return {
        "config.json": json.dumps({"model_type": "qwen3", "seed": seed}).encode(),
        "model.safetensors.index.json": json.dumps(index).encode(),
        **{name: safetensors(tensor, size, seed) for name, tensor in shards.items()},
        "code/tokens of words.txt": b"one two\n",
        "pytorch_model.bin": b"the same in another form",
        ".gitattributes": b"*.safetensors filter=lfs\n",
    }


def served(files: dict[str, bytes]) -> dict[str, bytes]:
    """Those of the files that a server needs."""
    return {name: content for name, content in files.items() if name[0] != "." and not name.endswith(".bin")}


def safetensors(tensor: str, size: int, seed: int = 0) -> bytes:
    """A file of one tensor of `size` bytes."""
    header = json.dumps({tensor: {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + random.Random(f"{tensor} {seed}").randbytes(size)
