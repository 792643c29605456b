"""What is asked: every shipped profile on its GPUs, and a grid of parallel sizes over more models. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from inventory.documents import read_models, read_profiles
from inventory.problems import Problems
from roles.preflight.hardware import Hardware
from roles.serve.profile import Flag, Profile
from roles.weights.model import Model

ROOT: Final = Path(__file__).parents[2] / "group_vars"

HOST: Final = Hardware(
    gpus=8,
    gpu="NVIDIA RTX PRO 6000 Blackwell Server Edition",
    memory_mib=97887,
    compute_capability="12.0",
    memory_bandwidth_gb_s=1792,
)


@dataclass(frozen=True)
class Case:
    """A profile with its model, as the estimate and the oracle are both asked."""

    profile: Profile
    model: Model
    draft: Model | None = None

    @property
    def name(self) -> str:
        return self.profile.name


@cache
def documents() -> tuple[Mapping[str, Model], Mapping[str, Profile]]:
    """The models and profiles that are shipped."""
    problems = Problems()
    files = {kind: {path.stem: path for path in (ROOT / kind).glob("*.yml")} for kind in ("models", "profiles")}
    models = read_models(files["models"], problems)
    return models, read_profiles(files["profiles"], files["models"], problems)


def variant(model: Model, name: str, **dimensions: object) -> Model:
    """`model` with other dimensions, or stored otherwise."""
    values = model.model_dump(exclude_unset=True)
    other = {key: dimensions.pop(key) for key in list(dimensions) if key in Model.model_fields}
    return Model.read(
        {**values, **other, "name": name, "architecture": {**values["architecture"], **dimensions}}, name
    )


@cache
def more_models() -> Mapping[str, Model]:
    """Models beside the shipped ones: each way of storing weights, and each kind of attention."""
    shipped, _ = documents()
    kimi, glm = shipped["kimi-k2.6"], shipped["glm-5-nvfp4"]
    parts = ("attention", "dense_mlp", "shared_experts", "experts", "draft")
    deepseek = variant(
        kimi,
        "deepseek-v3-fp8",
        quantization="fp8",
        quantized_parts=parts,
        model_type="deepseek_v3",
        vision_config=None,
        num_attention_heads=128,
        n_routed_experts=256,
        first_k_dense_replace=3,
        num_nextn_predict_layers=1,
        vocab_size=129280,
        max_position_embeddings=163840,
    )
    shared_indexers = tuple("full" if layer < 3 or layer % 4 == 2 else "shared" for layer in range(78))
    found = (
        deepseek,
        variant(deepseek, "deepseek-v3-bf16", quantization="none", quantized_parts=()),
        variant(kimi, "kimi-k2.6-nvfp4", quantization="nvfp4", kv_cache_scheme="fp8_e4m3"),
        variant(glm, "glm-5.1-nvfp4", quantized_parts=("experts",)),
        variant(
            glm,
            "glm-5.2-nvfp4",
            quantized_parts=("experts",),
            max_position_embeddings=1048576,
            indexer_types=shared_indexers,
        ),
    )
    return {**shipped, **{model.name: model for model in found}}


def cases() -> tuple[Case, ...]:
    """Every case; names are unique."""
    return (*_shipped(), *_grid())


def _shipped() -> Iterator[Case]:
    models, profiles = documents()
    for profile in profiles.values():
        if profile.server.get("device") != "cpu":
            yield Case(profile, models[profile.model], models[profile.draft] if profile.draft else None)


SIZES: Final[dict[str, dict[str, Flag]]] = {
    "tp8": {"tp_size": 8},
    "tp4": {"tp_size": 4},
    "tp8-ep2": {"tp_size": 8, "ep_size": 2},
    "tp8-ep8": {"tp_size": 8, "ep_size": 8},
    "tp4-pp2": {"tp_size": 4, "pp_size": 2},
    "tp2-pp4-ep2": {"tp_size": 2, "pp_size": 4, "ep_size": 2},
    "pp8": {"pp_size": 8},
    "tp8-attn-dp2": {"tp_size": 8, "attn_dp_size": 2},
    "tp8-attn-dp8": {"tp_size": 8, "attn_dp_size": 8},
    "tp8-ep8-attn-dp8": {"tp_size": 8, "ep_size": 8, "attn_dp_size": 8},
    "tp8-ep8-redundant16": {"tp_size": 8, "ep_size": 8, "ep_num_redundant_experts": 16},
}

MTP: Final[dict[str, Flag]] = {
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 1,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 2,
}

GRID: Final[dict[str, tuple[str, ...]]] = {
    "qwen3-8b": ("tp8", "tp4", "tp4-pp2", "pp8", "tp8-attn-dp2", "tp8-attn-dp8"),
    "qwen3-30b-a3b": ("tp8", "tp8-ep2", "tp8-ep8", "tp2-pp4-ep2", "tp8-attn-dp2"),
    "kimi-k2.6": tuple(size for size in SIZES if size != "tp8-ep8"),
    "kimi-k2.6-nvfp4": ("tp8", "tp4-pp2"),
    "glm-5-nvfp4": tuple(size for size in SIZES if size not in ("tp8-ep2", "tp2-pp4-ep2")),
    "glm-5.1-nvfp4": ("tp8", "tp8-attn-dp8"),
    "glm-5.2-nvfp4": ("tp8", "tp4-pp2"),
    "deepseek-v3-fp8": ("tp8", "tp8-ep8", "tp4-pp2", "tp8-attn-dp8"),
    "deepseek-v3-bf16": ("tp8-ep8",),
}

SINGLE: Final[tuple[tuple[str, str, dict[str, Flag], dict[str, str]], ...]] = (
    ("qwen3-8b", "tp1", {}, {}),
    ("qwen3-30b-a3b", "tp1", {}, {}),
    ("kimi-k2.6", "tp8-triton-moe", {**SIZES["tp8"], "moe_runner_backend": "triton"}, {}),
    ("kimi-k2.6", "tp8-dp-head", {**SIZES["tp8-attn-dp8"], "enable_dp_lm_head": True, "moe_dense_tp_size": 1}, {}),
    ("kimi-k2.6", "tp8-dp-encoder", {**SIZES["tp8"], "mm_enable_dp_encoder": True}, {}),
    ("kimi-k2.6", "tp8-bf16-kv", {**SIZES["tp8"], "kv_cache_dtype": "bf16"}, {}),
    ("kimi-k2.6", "pp4-uneven", {"tp_size": 2, "pp_size": 4}, {"SGLANG_PP_LAYER_PARTITION": "10,17,17,17"}),
    ("glm-5-nvfp4", "tp8-bf16-kv", {**SIZES["tp8"], "kv_cache_dtype": "bfloat16"}, {}),
    ("glm-5-nvfp4", "tp8-attn-dp8-unfused", {**SIZES["tp8-attn-dp8"], "disable_shared_experts_fusion": True}, {}),
    ("glm-5-nvfp4", "tp8-ep8-attn-dp8-mtp", {**SIZES["tp8-ep8-attn-dp8"], **MTP}, {}),
    ("glm-5.2-nvfp4", "tp8-mtp", {**SIZES["tp8"], **MTP}, {}),
    ("deepseek-v3-fp8", "tp8-mtp", {**SIZES["tp8"], **MTP}, {}),
    ("deepseek-v3-bf16", "tp8-mtp", {**SIZES["tp8-ep8"], **MTP}, {}),
)


def _grid() -> Iterator[Case]:
    for name, sizes in GRID.items():
        for size in sizes:
            yield _case(name, size, SIZES[size], {})
    for name, what, server, environment in SINGLE:
        yield _case(name, what, server, environment)


def _case(name: str, what: str, server: Mapping[str, Flag], environment: Mapping[str, str]) -> Case:
    model = more_models()[name]
    said: dict[str, Flag] = {"mem_fraction_static": 0.9, **server}
    if model.architecture.model_type == "glm_moe_dsa":
        said["quantization"] = "modelopt_fp4"
    profile = Profile(name=f"{name} {what}", description="", model=name, server=said, environment=dict(environment))
    return Case(profile, model)
