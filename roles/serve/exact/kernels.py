"""What needs GPUs while SGLang loads, replaced: kernels by functions of the same shapes, groups by fake ones."""

import sys
from typing import Any

import torch
import torch.distributed


def replace_kernels(processors: int) -> None:
    """Repacking kernels of Marlin, and the one call of DeepGEMM that asks the GPU."""
    import deep_gemm
    from sglang.srt.hardware_backend.gpu.quantization import gptq_kernels

    deep_gemm.get_num_sms = lambda: processors
    gptq_kernels.gptq_marlin_repack = _repack
    replacements = {"gptq_marlin_moe_repack": _repack_experts, "marlin_moe_permute_scales": _same_shape}
    for module in [m for name, m in sys.modules.items() if name.startswith("sglang")]:
        for name, replacement in replacements.items():
            if vars(module).get(name) is not None:
                setattr(module, name, replacement)


def _repack(
    weight: torch.Tensor, _order: Any, rows: int, columns: int, bits: int, *_: Any, **__: Any
) -> torch.Tensor:
    """Marlin's layout: tiles of 16 rows, `bits` bits per element in int32."""
    return torch.empty((rows // 16, columns * bits // 2), dtype=weight.dtype, device=weight.device)


def _repack_experts(weight: torch.Tensor, _order: Any, rows: int, columns: int, bits: int) -> torch.Tensor:
    shape = (weight.shape[0], rows // 16, columns * bits // 2)
    return torch.empty(shape, dtype=weight.dtype, device=weight.device)


def _same_shape(scales: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return torch.empty(tuple(scales.shape), dtype=scales.dtype, device=scales.device)


def replace_process_groups() -> None:
    """Every group is torch's fake one: the sizes are real, nobody answers."""
    from sglang.srt.distributed import parallel_state
    from torch.testing._internal.distributed.fake_pg import FakeStore

    start, group = torch.distributed.init_process_group, torch.distributed.new_group

    def init_process_group(*_: Any, world_size: int = -1, rank: int = -1, **__: Any) -> None:
        start(backend="fake", rank=rank, world_size=world_size, store=FakeStore())

    def new_group(ranks: Any = None, *_: Any, group_desc: str | None = None, **__: Any) -> Any:
        return group(ranks, backend="fake", group_desc=group_desc)

    torch.distributed.init_process_group = init_process_group
    torch.distributed.new_group = new_group

    coordinator = parallel_state.GroupCoordinator.__init__

    def without_communicators(self: Any, *args: Any, **options: Any) -> None:
        for name in options:
            if name.startswith("use_"):
                options[name] = False
        coordinator(self, *args, **options)

    parallel_state.GroupCoordinator.__init__ = without_communicators
