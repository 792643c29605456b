"""Bytes that one token takes in the KV cache of one rank. Pure.

Source: SGLang 0.5.23, model_executor/pool_configurator.py (`DefaultPoolConfigurator`).
"""

from collections.abc import Mapping
from typing import Final

from roles.refusal import Refusal, nearest
from roles.serve.parallelism import Parallelism
from roles.weights.model import Architecture, Model

ELEMENT_BYTES: Final[Mapping[str, int]] = {
    "bfloat16": 2,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
}
"""Bytes per element of the KV cache types that can be estimated."""

DRAFT_LIKE_TARGET: Final = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE"})
"""Algorithms for whose draft SGLang counts layers as large as the target's own."""


def bytes_per_token(
    model: Model,
    layers: range,
    parallelism: Parallelism,
    dtype: str,
    plain_sparse_rows: bool = False,
    algorithm: str | None = None,
    draft: Model | None = None,
) -> int:
    """Bytes of one token on a rank that holds `layers`, with the draft's share under speculative `algorithm`.

    `plain_sparse_rows`: the sparse attention kernels read fp8 rows without scales. Raises Refusal for another dtype.
    """
    if dtype not in ELEMENT_BYTES:
        raise Refusal(f"server.kv_cache_dtype: cannot be estimated for {dtype}; {nearest(dtype, ELEMENT_BYTES)}")
    element = ELEMENT_BYTES[dtype]
    a = model.architecture
    if a.is_latent:
        row = _latent_bytes(a, element, plain_sparse_rows)
        size = row * len(layers) + sum(indexer_bytes(a) for layer in layers if a.has_indexer(layer))
    else:
        row = _grouped_bytes(a, element, parallelism.attn_tp)
        size = row * len(layers)
    if algorithm in DRAFT_LIKE_TARGET and layers:
        drafted = draft.architecture.num_hidden_layers if draft else 1
        return size + drafted * (row + (indexer_bytes(a) if a.is_sparse else 0))
    if algorithm == "DFLASH" and draft is not None:
        d = draft.architecture
        return size + d.num_hidden_layers * _grouped_bytes(d, element, parallelism.attn_tp)
    return size


def _latent_bytes(a: Architecture, element: int, plain_sparse_rows: bool) -> int:
    """A latent and a rotary part; sparse attention in fp8 adds an fp32 scale per 128 and keeps the rotary bf16."""
    latent, rotary = a.kv_lora_rank or 0, a.qk_rope_head_dim or 0
    if a.is_sparse and element == 1 and not plain_sparse_rows:
        return latent + latent // 128 * 4 + rotary * 2
    return (latent + rotary) * element


def indexer_bytes(a: Architecture) -> int:
    """An fp8 key and an fp32 scale per 128 of it."""
    width = a.index_head_dim or 0
    return width + width // 128 * 4


def _grouped_bytes(a: Architecture, element: int, attn_tp: int) -> int:
    heads, width = a.num_key_value_heads or a.num_attention_heads, a.head_dim or 0
    return max(1, heads // attn_tp) * 2 * width * element
