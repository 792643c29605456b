"""What a folder of weights on a host holds, and the model it is: it wins over the model's YAML. Pure.

`read_checkpoint.py` runs on the host and prints what is read here.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from roles.refusal import Refusal
from roles.weights.model import Architecture, Model, Quantization, QuantizedPart

PROGRAM: Final = (Path(__file__).parent / "read_checkpoint.py").read_text()
"""For `python3 - FOLDER` on the host; its output is for `Checkpoint.read`."""

STORED_AS: Final[dict[str, Quantization]] = {"F8_E4M3": "fp8", "I32": "int4-g32", "U8": "nvfp4"}
"""By the type of a matrix in safetensors: how its part of the model is quantised."""

PARTS: Final[tuple[tuple[QuantizedPart, re.Pattern[str]], ...]] = (
    ("experts", re.compile(r"\.experts\.N\..*(weight|weight_packed)$")),
    ("shared_experts", re.compile(r"\.shared_experts\..*(weight|weight_packed)$")),
    ("attention", re.compile(r"\.self_attn\.(?!indexer).*proj\S*\.(weight|weight_packed)$")),
    ("dense_mlp", re.compile(r"\.mlp\.(gate|up|down)_proj\.(weight|weight_packed)$")),
)


class Checkpoint(NamedTuple):
    """A folder of weights: its JSON files, its size, and its tensors counted by pattern."""

    folder: str
    files: Mapping[str, object]
    bytes: int
    tensors: Mapping[str, Mapping[str, int]]
    """Key: the tensor's name, layer and expert numbers as N, and its type."""

    @classmethod
    def read(cls, printed: Mapping[str, Any]) -> Self:
        """What the host's program printed. Raises Refusal for a folder that is no complete checkpoint."""
        folder, files = str(printed["folder"]), printed["files"]
        if printed["problems"]:
            raise Refusal("\n".join(printed["problems"]))
        if not isinstance(files.get("config.json"), Mapping):
            raise Refusal(f"{folder}/config.json: required, but not there")
        if not printed["tensors"]:
            raise Refusal(f"{folder}: holds no weights; *.safetensors files are needed")
        return cls(folder, files, int(printed["bytes"]), printed["tensors"])

    def model(self, declared: Model) -> Model:
        """`declared`, with dimensions and quantisation as the weights themselves say. Raises Refusal."""
        config = self.files["config.json"]
        assert isinstance(config, Mapping)
        architecture = Architecture.of_config(config, f"{self.folder}/config.json")
        quantization, parts = self._quantization()
        if not self._has_mtp:
            architecture = architecture.model_copy(update={"num_nextn_predict_layers": 0})
        return declared.model_copy(
            update={
                "architecture": architecture,
                "quantization": quantization,
                "quantized_parts": parts,
                "kv_cache_scheme": "fp8_e4m3" if self._asks_for_fp8_cache() else "auto",
            }
        )

    def _quantization(self) -> tuple[Quantization, tuple[QuantizedPart, ...]]:
        stored: dict[QuantizedPart, set[str]] = {}
        for key in self.tensors:
            name, _, dtype = key.rpartition(" ")
            if (part := next((part for part, pattern in PARTS if pattern.search(name)), None)) is not None:
                stored.setdefault(part, set()).add(dtype)
        quantized = {part: kinds & set(STORED_AS) for part, kinds in stored.items() if kinds & set(STORED_AS)}
        kinds = {STORED_AS[dtype] for dtypes in quantized.values() for dtype in dtypes}
        if len(kinds) > 1:
            raise Refusal(f"{self.folder}: mixes {' and '.join(sorted(kinds))}, which cannot be estimated")
        parts = sorted(quantized)
        if self._has_mtp and "experts" in quantized and "BF16" not in stored["experts"]:
            # Were the MTP layer left unquantised, its experts would be bf16.
            parts.append("draft")
        return (kinds.pop(), tuple(parts)) if kinds else ("none", ())

    @property
    def _has_mtp(self) -> bool:
        """config.json announces the MTP layer, and some checkpoints leave it out."""
        return any("layers.N.eh_proj" in name for name in self.tensors)

    def _asks_for_fp8_cache(self) -> bool:
        described = self.files.get("hf_quant_config.json")
        inner = described.get("quantization") if isinstance(described, Mapping) else None
        return isinstance(inner, Mapping) and inner.get("kv_cache_quant_algo") == "FP8"
