"""A plugin of SGLang (its entry point group sglang.srt.plugins): every rank logs what it holds, in bytes.

Copied beside a .dist-info by `ranks.plugin`, and imported by the server's processes only.
"""

import json
import sys
from typing import Any

MARK = "rank holds: "


def register() -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    runner = "sglang.srt.model_executor.model_runner.ModelRunner"
    HookRegistry.register(f"{runner}.alloc_memory_pool", report, HookType.AROUND)


def report(allocate: Any, runner: Any, *arguments: Any, **options: Any) -> Any:
    """Allocate the KV pool, and say what this rank holds then."""
    from sglang.srt.runtime_context import get_parallel

    result = allocate(runner, *arguments, **options)
    sizes = runner.token_to_kv_pool.get_kv_size_bytes()
    held = {
        "tp": get_parallel().tp_rank,
        "pp": get_parallel().pp_rank,
        "draft": runner.is_draft_worker,
        "weights": weights(runner.model),
        "kv": int(sum(sizes) if isinstance(sizes, tuple) else sizes),
        "tokens": runner.token_to_kv_pool.size + runner.token_to_kv_pool.page_size,
    }
    say(MARK + json.dumps(held))
    return result


def say(line: str) -> None:
    """Print a line whole: unbuffered, `print` writes the line and its end apart, and another rank between."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def weights(model: Any) -> int:
    """Bytes of all tensors of a model, each storage once: parameters, buffers, and what else modules keep.

    Left out are tables of positions, which SGLang lengthens after loading, and keeps in bf16 on CPUs.
    """
    import torch

    storages: dict[int, int] = {}
    for module in model.modules():
        for held in (module._parameters, module._buffers, vars(module)):
            for name, tensor in held.items():
                if isinstance(tensor, torch.Tensor) and name != "cos_sin_cache":
                    storage = tensor.untyped_storage()
                    storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())
