"""Weights on a host are described by their own files, and what is not a whole model is refused in one sentence."""

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from roles.refusal import Refusal
from roles.serve.parallelism import Parallelism
from roles.serve.profile import Profile
from roles.serve.weights_per_rank import StageWeights, weights_per_rank
from roles.weights.checkpoint import PROGRAM, Checkpoint
from roles.weights.config_files import config_files
from roles.weights.model import Architecture, Model
from tests.oracle.cases import more_models

BYTES = {"BF16": 2, "F8_E4M3": 1, "U8": 1, "I32": 4, "F32": 4}


def described(folder: Path) -> Any:
    """What the program prints on the host."""
    run = subprocess.run(
        [sys.executable, "-", str(folder)], input=PROGRAM, capture_output=True, text=True, check=True
    )
    return json.loads(run.stdout)


def safetensors(path: Path, tensors: dict[str, str], size: int = 4) -> None:
    """A file with tensors of `size` elements, `tensors` being their types by name."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, dtype in tensors.items():
        start, end = end, end + size * BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": [size], "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))


def weights(folder: Path, model: Model, tensors: dict[str, str]) -> Path:
    for name, content in config_files(model).items():
        (folder / name).write_text(json.dumps(content))
    safetensors(folder / "model-00001-of-00001.safetensors", tensors)
    return folder


def held(model: Model) -> tuple[StageWeights, ...]:
    profile = Profile(name="any", description="", model=model.name, server={"tp_size": 8})
    return weights_per_rank(model, profile, Parallelism(tp=8))


LAYER = "model.layers.{}.mlp."
NVFP4 = {
    "model.layers.0.self_attn.q_a_proj.weight": "BF16",
    LAYER.format(0) + "down_proj.weight": "U8",
    LAYER.format(3) + "experts.0.up_proj.weight": "U8",
    LAYER.format(3) + "experts.0.up_proj.weight_scale": "F8_E4M3",
    LAYER.format(3) + "experts.1.up_proj.weight": "U8",
    LAYER.format(3) + "shared_experts.up_proj.weight": "U8",
    LAYER.format(78) + "experts.0.up_proj.weight": "BF16",
    "model.layers.78.eh_proj.weight": "BF16",
}
INT4 = {
    "language_model.model.layers.1.mlp.experts.7.up_proj.weight_packed": "I32",
    "language_model.model.layers.1.mlp.experts.7.up_proj.weight_scale": "BF16",
    "language_model.model.layers.1.mlp.shared_experts.up_proj.weight": "BF16",
    "language_model.model.layers.0.mlp.down_proj.weight": "BF16",
}
FP8 = {
    "model.layers.0.self_attn.o_proj.weight": "F8_E4M3",
    "model.layers.0.self_attn.o_proj.weight_scale_inv": "F32",
    "model.layers.0.mlp.up_proj.weight": "F8_E4M3",
    "model.layers.5.mlp.shared_experts.up_proj.weight": "F8_E4M3",
    "model.layers.5.mlp.experts.9.up_proj.weight": "F8_E4M3",
    "model.layers.61.mlp.experts.9.up_proj.weight": "F8_E4M3",
    "model.layers.61.eh_proj.weight": "BF16",
}
DENSE = {"model.layers.0.self_attn.q_proj.weight": "BF16", "model.layers.0.mlp.up_proj.weight": "BF16"}


@pytest.mark.parametrize(
    ("name", "tensors"),
    [("glm-5-nvfp4", NVFP4), ("kimi-k2.6", INT4), ("deepseek-v3-fp8", FP8), ("qwen3-8b", DENSE)],
)
def test_weights_say_the_same_as_the_model_that_they_are(name: str, tensors: dict[str, str], tmp_path: Path) -> None:
    declared = more_models()[name]
    found = Checkpoint.read(described(weights(tmp_path, declared, tensors))).model(declared)
    assert held(found) == held(declared)
    assert found.quantization == declared.quantization
    assert sorted(found.quantized_parts) == sorted(declared.quantized_parts)
    assert found.kv_cache_scheme == declared.kv_cache_scheme


def test_weights_win_over_what_was_declared(tmp_path: Path) -> None:
    kimi = more_models()["kimi-k2.6"]
    folder = weights(tmp_path, more_models()["qwen3-8b"], DENSE)
    found = Checkpoint.read(described(folder)).model(kimi)
    assert found.architecture.num_hidden_layers == 36
    assert found.quantized_parts == ()
    assert found.name == "kimi-k2.6"


@pytest.mark.parametrize("name", ["num_experts", "num_local_experts"])
def test_experts_are_counted_under_each_name_that_they_have(name: str) -> None:
    """`num_local_experts` is what the transformers of SGLang 0.5.23 write."""
    config = config_files(more_models()["qwen3-30b-a3b"])["config.json"]
    assert isinstance(config, dict)
    renamed = {name if key in ("num_experts", "n_routed_experts") else key: value for key, value in config.items()}
    assert renamed[name] == 128
    assert Architecture.of_config(renamed, "config.json").n_routed_experts == 128


def test_an_mtp_layer_that_was_left_out_is_not_counted(tmp_path: Path) -> None:
    tensors = {name: dtype for name, dtype in NVFP4.items() if ".78." not in name}
    declared = more_models()["glm-5-nvfp4"]
    found = Checkpoint.read(described(weights(tmp_path, declared, tensors))).model(declared)
    assert found.architecture.num_nextn_predict_layers == 0


def test_tensors_are_counted_by_pattern(tmp_path: Path) -> None:
    read = Checkpoint.read(described(weights(tmp_path, more_models()["glm-5-nvfp4"], NVFP4)))
    assert read.tensors["model.layers.N.mlp.experts.N.up_proj.weight U8"] == {"count": 2, "bytes": 8}
    assert read.bytes == (tmp_path / "model-00001-of-00001.safetensors").stat().st_size


@pytest.mark.parametrize("kept", [0, 5, 40, -1])
def test_truncated_weights_are_refused(kept: int, tmp_path: Path) -> None:
    folder = weights(tmp_path, more_models()["qwen3-8b"], DENSE)
    file = folder / "model-00001-of-00001.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(Refusal, match="truncated") as refused:
        Checkpoint.read(described(folder))
    assert str(refused.value).startswith(str(file))
    assert "\n" not in str(refused.value)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="none: cannot be read: No such file or directory"):
        Checkpoint.read(described(tmp_path / "none"))


def test_weights_without_a_description_are_refused(tmp_path: Path) -> None:
    safetensors(tmp_path / "model.safetensors", DENSE)
    with pytest.raises(Refusal, match=r"config\.json: required, but not there"):
        Checkpoint.read(described(tmp_path))


def test_a_description_without_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(Refusal, match="holds no weights"):
        Checkpoint.read(described(tmp_path))


def test_a_description_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(Refusal, match=r"config\.json: Expecting"):
        Checkpoint.read(described(tmp_path))


def config(**values: object) -> dict[str, object]:
    full = config_files(more_models()["glm-5-nvfp4"])["config.json"]
    assert isinstance(full, dict)
    return {key: value for key, value in {**full, **values}.items() if value is not None}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"model_type": "glm_moe_dsb"}, "model_type: unknown 'glm_moe_dsb'; did you mean glm_moe_dsa?"),
        ({"model_type": "mamba2"}, "model_type: unknown 'mamba2'; known: deepseek_v2,"),
        ({"model_type": None}, "model_type: required, but not given"),
        ({"kv_lora_rank": None}, "kv_lora_rank: required for model_type glm_moe_dsa"),
        ({"n_routed_experts": None}, "n_routed_experts: required for model_type glm_moe_dsa"),
        ({"hidden_size": None}, "hidden_size: required, but not given"),
        ({"hidden_size": 0}, "hidden_size: input should be greater than 0, not 0"),
        ({"indexer_types": ["full"]}, "indexer_types: needs one entry for each of 78 layers"),
    ],
)
def test_a_config_that_cannot_be_estimated_is_refused(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(Refusal) as refused:
        Architecture.of_config(config(**values), "config.json")
    assert str(refused.value).startswith(f"config.json: {sentence}")
    assert "\n" not in str(refused.value)
