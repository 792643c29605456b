"""Builds one rank of a server as SGLang does, up to where it sizes the KV cache (as 0.5.23's scheduler does)."""

import gc
import json
import logging
import tempfile
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from sglang.version import __version__

from roles.serve.exact import Answer, Question
from roles.serve.exact.account import bytes_by_part, storages
from roles.serve.exact.gpus import on_meta
from roles.serve.exact.kernels import replace_kernels, replace_process_groups

WITHOUT_CHECKPOINT = ("--skip-tokenizer-init", "--load-format", "dummy", "--device", "cuda", "--log-level", "error")

SETTINGS = (
    "attention_backend",
    "chunked_prefill_size",
    "dsa_decode_backend",
    "dsa_prefill_backend",
    "kv_cache_dtype",
    "mem_fraction_static",
    "moe_runner_backend",
    "page_size",
)


def version() -> str:
    return str(__version__)


def load_sglang() -> None:
    """The imports, which take longer than everything else, and the replacements for what needs a GPU."""
    from sglang.srt.models.registry import ModelRegistry

    ModelRegistry.get_supported_archs()
    replace_process_groups()
    replace_kernels(torch.cuda.get_device_properties(0).multi_processor_count)


def build(question: Question, rank: int) -> Answer:
    """What world rank `rank` holds. Raises whatever SGLang raises when it refuses."""
    with tempfile.TemporaryDirectory() as folder:
        flags = [*question.flags, "--model-path", _written(Path(folder) / "model", question.files)]
        if question.draft_files:
            draft_path = _written(Path(folder) / "draft", question.draft_files)
            flags += ["--speculative-draft-model-path", draft_path]
        arguments = _resolved([*flags, *WITHOUT_CHECKPOINT])
        config = _runtime(arguments, rank)
        model = _loaded(arguments, config)
        parts = bytes_by_part(model)
        draft = _draft(arguments, model)
        return Answer(
            name=question.name,
            rank=rank,
            version=version(),
            weights=sum(parts.values()) + draft,
            draft=draft,
            parts=parts,
            kv_bytes_per_token=_kv_bytes_per_token(arguments, config, model),
            settings=_settings(arguments),
        )


def _written(folder: Path, files: Mapping[str, object]) -> str:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return str(folder)


def _resolved(flags: list[str]) -> Any:
    from sglang.srt.server_args import prepare_server_args

    arguments = prepare_server_args(flags)
    logging.getLogger().setLevel(logging.ERROR)
    arguments.resolve_once()
    arguments.check_server_args()
    return arguments


def _runtime(arguments: Any, rank: int) -> Any:
    """Parallel groups, expert placement and offloading of one rank; returns SGLang's ModelConfig."""
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.distributed import bootstrap
    from sglang.srt.eplb.expert_location import (
        compute_initial_expert_location_metadata,
        set_global_expert_location_metadata,
    )
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.runtime_context import SpawnRanks, get_parallel, publish
    from sglang.srt.utils.offloader import create_offloader, set_offloader

    gpu = rank % torch.cuda.device_count()
    publish(arguments, role="scheduler", ranks=SpawnRanks(world_rank=rank, dp_rank=None, gpu_id=gpu))
    config = ModelConfig.from_server_args(arguments)
    bootstrap._init_parallel_groups(backend="fake", dist_init_method="fake://", server_args=arguments, gpu_id=gpu)
    bootstrap.init_layer_runtime(model_config=config)
    Scheduler.init_moe_gemm_config(types.SimpleNamespace(model_config=config))
    location = compute_initial_expert_location_metadata(model_config=config, moe_ep_rank=get_parallel().moe_ep_rank)
    set_global_expert_location_metadata(location)
    set_offloader(create_offloader())
    return config


def _loaded(arguments: Any, config: Any) -> Any:
    """The model class with its weights processed, as after a load."""
    from sglang.srt.model_executor.model_runner_components.load_model_utils import build_load_config
    from sglang.srt.model_loader import loader
    from sglang.srt.runtime_context import get_parallel

    load_config = build_load_config(
        server_args=arguments,
        tp_rank=get_parallel().tp_rank,
        remote_instance_weight_transporter_engine=None,
        remote_instance_weight_transporter_session_id="",
        draft_model_idx=None,
        weight_cache_mode="off",
        weight_cache_socket=None,
    )
    quantization = loader._get_quantization_config(config, load_config)
    with loader.set_default_torch_dtype(config.dtype), on_meta(default=True):
        model = loader._initialize_model(config, load_config, quantization)
    with loader.set_default_torch_dtype(config.dtype), on_meta(default=False):
        loader.post_load_weights(model)
        for module, method in loader._modules_with_quant_method(model):
            method.process_weights_after_loading(module)
    gc.collect()
    return model


def _draft(arguments: Any, target: Any) -> int:
    """Bytes of the draft model on the last pipeline stage, before it takes over the target's embedding and head."""
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.runtime_context import get_parallel, get_spec
    from sglang.srt.speculative import eagle_worker_v2 as eagle
    from sglang.srt.speculative.draft_parallel import model_draft_parallel_spec
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    spec = get_spec()
    if spec.speculative_draft_model_path is None or not get_parallel().pp_group.is_last_rank:
        return 0
    config = ModelConfig.from_server_args(
        arguments, model_path=spec.speculative_draft_model_path, is_draft_model=True
    )
    algorithm = SpeculativeAlgorithm.from_string(spec.speculative_algorithm)
    layout = eagle.resolve_draft_parallel_layout(model_draft_parallel_spec(config, spec_algorithm=algorithm))
    with (
        eagle.draft_tp_context(layout),
        eagle.draft_pp_context(),
        eagle.speculative_moe_backend_context(),
        eagle.speculative_moe_a2a_backend_context(),
        eagle.draft_model_build_scope(),
    ):
        draft = _loaded(arguments, config)
    return sum(bytes_by_part(draft, without=storages(target)).values())


def _kv_bytes_per_token(arguments: Any, config: Any, model: Any) -> int:
    """SGLang's own sizing of the pool, asked for the bytes of one token."""
    from sglang.srt.arg_groups.overrides import use_mla_backend
    from sglang.srt.mem_cache.draft_kv_budget import resolve_dflash_draft_cell_size
    from sglang.srt.mem_cache.kv_cache_dtype import configure_kv_cache_dtype
    from sglang.srt.model_executor.model_runner_components.layer_setup import resolve_layer_indices
    from sglang.srt.model_executor.model_runner_components.spec_aux_hidden_state import (
        resolve_spec_aux_hidden_state_config,
    )
    from sglang.srt.model_executor.pool_configurator import DefaultPoolConfigurator
    from sglang.srt.runtime_context import get_model, get_parallel, get_spec
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    spec = get_spec()
    algorithm = SpeculativeAlgorithm.from_string(spec.speculative_algorithm)
    said, dtype = configure_kv_cache_dtype(
        server_args_kv_cache_dtype=get_model().kv_cache_dtype,
        model=model,
        model_dtype=config.dtype,
        is_draft_worker=False,
        is_dflash=algorithm.is_dflash_family(),
        speculative_draft_attention_backend=spec.speculative_draft_attention_backend,
    )
    auxiliary = resolve_spec_aux_hidden_state_config(
        server_args=arguments, model_config=config, spec_algorithm=algorithm, is_draft_worker=False
    )
    draft_cell = None
    if algorithm.is_dflash_family() and auxiliary.draft_model_config is not None:
        draft_cell = resolve_dflash_draft_cell_size(
            draft_model_config=auxiliary.draft_model_config,
            draft_num_layers=auxiliary.dflash_draft_num_layers,
            attn_tp_size=get_parallel().attn_tp_size,
        )
    pool = types.SimpleNamespace(
        kv_cache_dtype_str=said or get_model().kv_cache_dtype,
        kv_cache_dtype=dtype,
        model_config=config,
        model_dtype=config.dtype,
        server_args=arguments,
        layer_info=resolve_layer_indices(model=model, model_config=config, is_draft_worker=False),
        is_draft_worker=False,
        spec_algorithm=algorithm,
        spec_aux_config=auxiliary,
        use_mla_backend=use_mla_backend(arguments),
        mambaish_config=None,
        pp_size=get_parallel().pp_size,
        kv_shard_spec=None,
        dflash_draft_cell_size_per_token=draft_cell,
        fused_entry_bytes=lambda _: None,
    )
    return int(DefaultPoolConfigurator(pool)._cell_size)


def _settings(arguments: Any) -> dict[str, str]:
    from sglang.srt.arg_groups.overrides import resolution_result

    return {name: str(resolution_result(arguments, name)) for name in SETTINGS}
