"""What SGLang allocates after it has sized the KV pool, and never checks: it must fit beside weights and pool. Pure.

Exact where SGLang's code gives the size; measured where only a GPU can say (on one H200, SGLang 0.5.17, five models).
"""

from collections.abc import Iterator
from math import ceil
from typing import Final, NamedTuple

from roles.preflight.hardware import Hardware
from roles.serve.kv_cache import ELEMENT_BYTES
from roles.serve.parallelism import Parallelism
from roles.serve.sizing import Sizing
from roles.weights.model import Model

MIB: Final = 2**20
GIB: Final = 2**30

PREFILL_GRAPH: Final = 1.5 * GIB
"""Measured 1.33 to 1.44 GiB with grouped and with sparse attention, 1.67 with experts; SGLang reserves as much."""
DECODE_GRAPH_PER_REQUEST: Final = 1.5 * MIB
DECODE_GRAPH: Final = 0.1 * GIB
"""Measured 0.21 GiB (grouped) to 0.56 (sparse) at 256 requests, 0.08 to 0.20 at 64, attention's buffers aside."""
DRAFT_GRAPHS: Final = 0.33 * GIB
"""Measured 0.26 (Kimi K2.6's dimensions) and 0.40 GiB (GLM-5) more with an MTP draft, at 64 requests."""
RUNTIME: Final = 0.35 * GIB
"""Measured 0.13 to 0.34 GiB between the last captured graph and ready."""
COMMUNICATION: Final = 0.65 * GIB
"""Channels that NCCL opens at first use: the rest of the 1 GiB seen on eight GPUs. Not measured here."""

REQUEST_TABLE: Final = "table of requests"
"""The one buffer that is allocated with the KV pool."""

STREAMING_PROCESSORS: Final = {"RTX PRO 6000": 188, "H200": 132, "H100": 132, "B200": 148}
"""Multiprocessors by a part of the GPU's name; decides how far the Triton decode kernel splits."""
FLASHINFER_WORKSPACE: Final = {"qwen3": 512 * MIB}
FLASHINFER_WORKSPACE_DEFAULT: Final = 384 * MIB


class Buffer(NamedTuple):
    """One allocation on each GPU."""

    name: str
    bytes: int
    grows_with: str
    """The flag to lower when it does not fit; empty where none helps."""
    captured: bool = False
    """SGLang reports it as memory of its CUDA graphs, because it allocates it while it captures them."""
    spread: int = 0
    """Bytes by which it was seen larger for no reason that is known."""


def buffers(
    model: Model, sizing: Sizing, parallelism: Parallelism, hardware: Hardware, tokens: int
) -> tuple[Buffer, ...]:
    """The buffers of the largest rank, with `tokens` in the KV pool."""
    found = [
        Buffer(REQUEST_TABLE, _request_table(sizing, tokens), "max_running_requests"),
        Buffer("logits", _rows(sizing) * model.architecture.vocab_size * 4, "cuda_graph_max_bs_decode"),
        *_attention(model, sizing, parallelism, hardware, tokens),
        Buffer("prefill activations", _activations(model, sizing, parallelism), "chunked_prefill_size"),
        Buffer("runtime", int(RUNTIME), ""),
    ]
    if sizing.decode_batch:
        size = DECODE_GRAPH + DECODE_GRAPH_PER_REQUEST * sizing.decode_batch
        found.append(Buffer("decode graphs", int(size), "cuda_graph_max_bs_decode", captured=True))
        if sizing.draft_tokens > 1:
            found.append(Buffer("draft graphs", int(DRAFT_GRAPHS), "max_running_requests", captured=True))
    if sizing.prefill_graph:
        found.append(Buffer("prefill graphs", int(PREFILL_GRAPH), "chunked_prefill_size", captured=True))
    if parallelism.tp * parallelism.pp > 1:
        found.append(Buffer("communication", int(COMMUNICATION), ""))
    return tuple(found)


def processors(hardware: Hardware) -> int:
    """Multiprocessors of one GPU; of the RTX PRO 6000 where the GPU's name is unknown."""
    return next((number for name, number in STREAMING_PROCESSORS.items() if name in hardware.gpu), 188)


def _rows(sizing: Sizing) -> int:
    """Tokens of the largest decode batch. Without graphs the same buffers are made for each batch."""
    requests = sizing.decode_batch or sizing.max_running_requests or 256
    return requests * sizing.draft_tokens


def _request_table(sizing: Sizing, tokens: int) -> int:
    """`ReqToTokenPool`: an int32 for each position of each request that may run."""
    extra = 4 + (sizing.draft_tokens if sizing.draft_tokens > 1 else 0)
    return (sizing.requests(tokens) + 1) * (sizing.context_length + extra) * 4


def _attention(
    model: Model, sizing: Sizing, parallelism: Parallelism, hardware: Hardware, tokens: int
) -> Iterator[Buffer]:
    a = model.architecture
    rows = _rows(sizing)
    match sizing.attention_backend:
        case "triton":
            heads = ceil(a.num_attention_heads / parallelism.attn_tp)
            width = (a.kv_lora_rank if a.is_latent else a.head_dim) or 0
            partial = rows * heads * _kv_splits(model, sizing, hardware) * (width + 1) * 4
            yield Buffer("decode attention, partial results", partial, "cuda_graph_max_bs_decode", captured=True)
            indices = rows * sizing.context_length * 8
            yield Buffer("decode attention, indices", indices, "cuda_graph_max_bs_decode", captured=True)
        case "flashinfer":
            workspace = FLASHINFER_WORKSPACE.get(a.model_type, FLASHINFER_WORKSPACE_DEFAULT)
            yield Buffer("attention workspace", workspace, "")
            indices = rows * sizing.context_length * 4
            yield Buffer("decode attention, indices", indices, "cuda_graph_max_bs_decode", captured=True)
        case _:
            pages = ceil(sizing.context_length / sizing.page_size)
            yield Buffer("decode attention, page table", rows * pages * 4, "cuda_graph_max_bs_decode", captured=True)
    if sizing.attention_backend == "fa3" and a.is_latent and ELEMENT_BYTES[sizing.kv_cache_dtype] == 1:
        # FlashAttention-3 reads no fp8 latent: each decode step casts one layer's whole pool to bf16.
        width = (a.kv_lora_rank or 0) + (a.qk_rope_head_dim or 0)
        size = tokens * width * 2
        # Once with INT4 and twice with fp8 weights; with bf16 weights two of them were allocated.
        yield Buffer("KV cache of one layer as bf16", size, "kv_cache_dtype", captured=True, spread=size)


def _kv_splits(model: Model, sizing: Sizing, hardware: Hardware) -> int:
    """`_mla_decode_kv_splits_cap`: by multiprocessors and context, both rounded up to a power of two."""
    if not model.architecture.is_latent:
        return 8
    return max(8, min(_power_of_two(processors(hardware)), _power_of_two(ceil(sizing.context_length / 32))))


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


def _activations(model: Model, sizing: Sizing, parallelism: Parallelism) -> int:
    """The widest moment of a prefill step, in bf16.

    A captured prefill holds all of it in its graph but attention, which runs between the graph's segments.
    """
    a = model.architecture
    chunk = sizing.chunked_prefill_size if sizing.chunked_prefill_size > 0 else sizing.context_length
    heads = ceil(a.num_attention_heads / parallelism.attn_tp)
    if a.is_latent:
        attention = heads * (3 * (a.kv_lora_rank or 0) + (a.qk_rope_head_dim or 0))
    else:
        attention = 3 * heads * (a.head_dim or 0)
    if sizing.prefill_graph:
        return chunk * attention * 2
    mlp = 3 * ceil(a.intermediate_size / parallelism.tp)
    experts = 0
    if a.n_routed_experts:
        inner = ceil((a.moe_intermediate_size or 0) / parallelism.moe_tp)
        # fused_marlin_moe.py: both halves of the first product, or the second, beside the activated half.
        experts = (a.num_experts_per_tok or 0) * (max(2 * inner, a.hidden_size) + inner)
    return chunk * (4 * a.hidden_size + max(attention, mlp, experts)) * 2
