"""Bytes of everything that modules hold: parameters, buffers, and tensors in plain attributes."""

import re
import types
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

PARTS = (
    ("vision", re.compile(r"(^|\.)(vision_tower|mm_projector|visual|multi_modal_projector)\.")),
    ("embedding", re.compile(r"embed_tokens")),
    ("lm_head", re.compile(r"lm_head")),
    ("rope", re.compile(r"rotary|cos_sin")),
    ("indexer", re.compile(r"\.indexer\.")),
    ("experts", re.compile(r"\.experts\.")),
    ("shared_experts", re.compile(r"\.shared_experts?\.")),
    ("router", re.compile(r"\.mlp\.gate\.|e_score_correction_bias")),
    ("norms", re.compile(r"norm")),
    ("attention", re.compile(r"\.self_attn\.")),
    ("dense_mlp", re.compile(r"\.mlp\.")),
)
"""The first that matches a tensor's name is its part."""

DEPTH = 3
"""How deep attributes of attributes are followed."""


def bytes_by_part(model: torch.nn.Module, without: frozenset[int] = frozenset()) -> dict[str, int]:
    """Bytes on the pretended GPU, each storage once; storages in `without` belong to somebody else."""
    seen = set(without)
    parts: Counter[str] = Counter()
    for name, tensor in _tensors(model):
        key = _storage(tensor)
        if key in seen or tensor.device.type != "meta":
            continue
        seen.add(key)
        parts[_part(name)] += tensor.untyped_storage().nbytes()
    return dict(parts)


def storages(model: torch.nn.Module) -> frozenset[int]:
    """Identities of all storages that `model` holds."""
    return frozenset(_storage(tensor) for _, tensor in _tensors(model))


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _part(name: str) -> str:
    return next((part for part, pattern in PARTS if pattern.search(name)), "other")


def _tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)
    for path, module in model.named_modules(remove_duplicate=False):
        for name, value in list(vars(module).items()):
            if name not in ("_parameters", "_buffers", "_modules"):
                yield from _inside(value, f"{path}.{name}", DEPTH)


def _inside(value: Any, name: str, depth: int) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif depth < 0 or isinstance(value, torch.nn.Module | type | types.FunctionType | types.ModuleType):
        return
    elif isinstance(value, dict):
        for key, item in list(value.items()):
            yield from _inside(item, f"{name}.{key}", depth - 1)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _inside(item, f"{name}.{index}", depth - 1)
    elif type(value).__module__.startswith("sglang") and type(value).__name__ != "GroupCoordinator":
        for key in (*getattr(value, "__dict__", {}), *getattr(type(value), "__struct_fields__", ())):
            yield from _inside(getattr(value, key, None), f"{name}.{key}", depth - 1)
