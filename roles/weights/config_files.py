"""The JSON files of a model folder, from the model's dimensions: for a model that is not downloaded yet. Pure."""

from typing import Final

from roles.weights.model import Architecture, Model, Quantization, QuantizedPart

CLASSES: Final = {
    "deepseek_v2": "Eagle3DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "deepseek_v32": "DeepseekV32ForCausalLM",
    "glm_moe_dsa": "GlmMoeDsaForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "kimi_k25": "KimiK25ForConditionalGeneration",
    "llama": "LlamaForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}
"""The class that implements each model type."""

ROPE_FACTOR: Final = 64
"""MLA models stretch a shorter range of positions by YaRN; only the product is max_position_embeddings."""

PATTERNS: Final[dict[QuantizedPart, str]] = {
    "attention": "self_attn",
    "shared_experts": "shared_experts",
    "dense_mlp": r"mlp\.(gate|up|gate_up|down)_proj",
}
"""How the modules of a part are recognised in a checkpoint's list of exceptions."""


def config_files(model: Model) -> dict[str, object]:
    """`config.json`, and `hf_quant_config.json` where the quantisation is described there."""
    config = _text(model.architecture)
    quantization = _quantization(model)
    if model.architecture.vision_config is not None:
        inner = {**config, "model_type": "kimi_k2", "architectures": ["DeepseekV3ForCausalLM"], **quantization}
        config = {
            "architectures": config["architectures"],
            "model_type": config["model_type"],
            "dtype": "bfloat16",
            "tie_word_embeddings": model.architecture.tie_word_embeddings,
            "media_placeholder_token_id": 1,
            "vision_config": _vision(model.architecture),
            "text_config": inner,
        }
    else:
        config |= quantization
    files: dict[str, object] = {"config.json": config}
    if model.quantization == "nvfp4":
        files["hf_quant_config.json"] = {"quantization": _nvfp4(model)}
    return files


def _text(a: Architecture) -> dict[str, object]:
    values = a.model_dump(exclude_defaults=True, exclude={"vision_config", "target_layer_ids"}, mode="json")
    config: dict[str, object] = {
        **values,
        "architectures": [CLASSES[a.model_type]],
        "dtype": "bfloat16",
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "attention_bias": False,
        "tie_word_embeddings": a.tie_word_embeddings,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "rope_theta": 10000.0,
        "rope_scaling": None,
    }
    if a.is_latent:
        config |= {
            "num_key_value_heads": a.num_attention_heads,
            "moe_layer_freq": a.moe_layer_freq,
            "first_k_dense_replace": a.first_k_dense_replace,
            "qk_head_dim": (a.qk_nope_head_dim or 0) + (a.qk_rope_head_dim or 0),
            "head_dim": a.qk_rope_head_dim,
            "n_group": 1,
            "topk_group": 1,
            "topk_method": "noaux_tc",
            "scoring_func": "sigmoid",
            "norm_topk_prob": True,
            "routed_scaling_factor": 2.5,
        }
        config["rope_scaling"] = None if a.is_sparse else _yarn(a.max_position_embeddings)
        if a.is_sparse:
            del config["rope_scaling"], config["rope_theta"]
            config |= {
                "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"},
                "rope_interleave": True,
                "indexer_rope_interleave": True,
            }
    elif a.n_routed_experts is not None:
        config |= {
            "num_experts": a.n_routed_experts,
            "mlp_only_layers": list(a.mlp_only_layers),
            "decoder_sparse_step": a.decoder_sparse_step,
            "norm_topk_prob": True,
        }
    return config


def _yarn(positions: int) -> dict[str, object]:
    return {
        "type": "yarn",
        "factor": float(ROPE_FACTOR),
        "original_max_position_embeddings": positions // ROPE_FACTOR,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    }


def _vision(a: Architecture) -> dict[str, object]:
    assert a.vision_config is not None
    return {
        **a.vision_config.model_dump(mode="json"),
        "init_pos_emb_time": 4,
        "merge_type": "sd2_tpool",
        "mm_hidden_size": a.vision_config.vt_hidden_size,
        "mm_projector_type": "patchmerger",
        "pos_emb_type": "divided_fixed",
        "projector_hidden_act": "gelu",
        "projector_ln_eps": 1e-5,
        "text_hidden_size": a.hidden_size,
        "video_attn_type": "spatial_temporal",
    }


def _quantization(model: Model) -> dict[str, object]:
    described: dict[Quantization, dict[str, object]] = {
        "none": {},
        "nvfp4": {},
        "fp8": {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [128, 128],
        },
        "int4-g32": {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "quantization_status": "compressed",
            "kv_cache_scheme": None,
            "ignore": ["lm_head", *(f"re:.*{pattern}.*" for pattern in _kept(model).values())],
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "input_activations": None,
                    "output_activations": None,
                    "weights": {
                        "type": "int",
                        "num_bits": 4,
                        "group_size": 32,
                        "strategy": "group",
                        "symmetric": True,
                        "dynamic": False,
                        "actorder": None,
                        "block_structure": None,
                        "observer": "minmax",
                        "observer_kwargs": {},
                    },
                }
            },
        },
    }
    found = described[model.quantization]
    return {"quantization_config": found} if found else {}


def _kept(model: Model) -> dict[QuantizedPart, str]:
    return {part: pattern for part, pattern in PATTERNS.items() if part not in model.quantized_parts}


def _nvfp4(model: Model) -> dict[str, object]:
    """Exceptions are named layer by layer, as NVIDIA's tool writes them."""
    a, kept = model.architecture, _kept(model)
    root = "language_model." if a.vision_config else ""
    excluded = [f"{root}lm_head"]
    for layer in range(a.num_hidden_layers):
        path = f"{root}model.layers.{layer}"
        if "attention" in kept:
            excluded.append(f"{path}.self_attn*")
        if "shared_experts" in kept and a.has_experts(layer):
            excluded.append(f"{path}.mlp.shared_experts*")
        if "dense_mlp" in kept and not a.has_experts(layer):
            excluded.append(f"{path}.mlp*")
    excluded += [
        f"{root}model.layers.{layer}*"
        for layer in range(a.num_hidden_layers, a.num_hidden_layers + a.num_nextn_predict_layers)
    ]
    if a.vision_config:
        excluded += ["vision_tower*", "mm_projector*"]
    cache = "FP8" if model.kv_cache_scheme == "fp8_e4m3" else None
    return {"quant_algo": "NVFP4", "kv_cache_quant_algo": cache, "group_size": 16, "exclude_modules": excluded}
