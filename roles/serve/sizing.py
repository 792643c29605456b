"""The sizes that SGLang derives from flags, model and GPU before it loads anything. Pure.

Source: SGLang 0.5.23, arg_groups/memory_hook.py, cuda_graph_hook.py, parallel_hook.py, overrides.py.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple, Self

from roles.preflight.hardware import Hardware
from roles.refusal import Refusal
from roles.serve.parallelism import Parallelism
from roles.serve.profile import Flag, Profile
from roles.weights.model import Model

SUFFIXES: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}

PAGE_SIZES: Final = {"dsa": 64, "flashmla": 64, "trtllm_mla": 64, "cutedsl_mla": 64, "trtllm_mha": 64}
"""Tokens of a KV cache page, by attention backend; 1 elsewhere."""

SPECULATIVE_REQUESTS: Final = 48
"""max_running_requests under speculative decoding, where nothing is said."""


class Sizing(NamedTuple):
    """Sizes of one server; token and request counts are per attention group (attn_dp)."""

    mem_fraction_static: float
    context_length: int
    attention_backend: str
    kv_cache_dtype: str
    plain_sparse_rows: bool
    """The kernels of sparse attention read fp8 rows without scales."""
    page_size: int
    chunked_prefill_size: int
    """Tokens of one prefill step; -1 means that a prompt is one step."""
    max_running_requests: int | None
    """None: derived from the tokens in the pool."""
    max_total_tokens: int | None
    decode_batch: int
    """Most requests in one decode CUDA graph; 0 without decode graphs."""
    prefill_graph: bool
    draft_tokens: int
    """Tokens that one request checks in one speculative step; 1 without speculation."""

    @classmethod
    def of(cls, model: Model, profile: Profile, parallelism: Parallelism, hardware: Hardware) -> Self:
        """What SGLang makes of `profile`. Raises Refusal for a value that is no number."""
        server = profile.server
        backend = _text(server, "attention_backend") or _attention_backend(model, hardware)
        speculative = server.get("speculative_algorithm") is not None
        requests = _count(server, "max_running_requests") or (SPECULATIVE_REQUESTS if speculative else None)
        chunk = _count(server, "chunked_prefill_size") or _default_chunk(hardware)
        prefill_graph = _prefill_graph(server, parallelism)
        decode_batch = _decode_batch(server, parallelism, hardware, requests)
        fraction = server.get("mem_fraction_static")
        if fraction is None:
            fraction = _default_fraction(model, parallelism, hardware, chunk, decode_batch, prefill_graph)
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 < fraction < 1:
            raise Refusal(f"server.mem_fraction_static: must be a number between 0 and 1, not {fraction!r}")
        return cls(
            mem_fraction_static=float(fraction),
            context_length=_count(server, "context_length") or model.architecture.max_position_embeddings,
            attention_backend=backend,
            kv_cache_dtype=_kv_cache_dtype(model, server, hardware),
            plain_sparse_rows=_plain_sparse_rows(model, server, hardware),
            page_size=_count(server, "page_size") or PAGE_SIZES.get(backend, 1),
            chunked_prefill_size=chunk if chunk < 0 else max(1, chunk // parallelism.attn_dp),
            max_running_requests=requests and max(1, requests // parallelism.attn_dp),
            max_total_tokens=_count(server, "max_total_tokens"),
            decode_batch=decode_batch,
            prefill_graph=prefill_graph,
            draft_tokens=(_count(server, "speculative_num_draft_tokens") or 4) if speculative else 1,
        )

    def requests(self, tokens: int) -> int:
        """Requests that may run at once with `tokens` in the pool (`resolve_max_num_reqs`)."""
        if self.max_running_requests is not None:
            return min(self.max_running_requests, tokens // 2)
        estimated = int(tokens / self.context_length * 512)
        return min(max(2048, min(estimated, 4096)), tokens // 2)


def _count(server: Mapping[str, Flag], flag: str) -> int | None:
    """An integer flag; SGLang also accepts `128k` and `128Ki`."""
    value = server.get(flag)
    if value is None:
        return None
    if isinstance(value, str) and (match := re.fullmatch(r"(-?\d+)(Ki|Mi|Gi|k|M|G|)", value)):
        return int(match[1]) * SUFFIXES[match[2]]
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refusal(f"server.{flag}: must be an integer, not {value!r}")
    return value


def _text(server: Mapping[str, Flag], flag: str) -> str | None:
    value = server.get(flag)
    return None if value is None else str(value)


def _capability(hardware: Hardware) -> int:
    """Major compute capability; 0 where it is not declared."""
    return int(hardware.compute_capability.partition(".")[0] or 0)


def _attention_backend(model: Model, hardware: Hardware) -> str:
    """`get_default_attn_backend`: SM90 is Hopper, SM100 data-centre Blackwell, SM120 workstation Blackwell."""
    major = _capability(hardware)
    if model.architecture.is_sparse:
        return "dsa"
    if model.architecture.is_latent:
        return {9: "fa3", 10: "trtllm_mla"}.get(major, "triton")
    return {9: "fa3", 10: "trtllm_mha"}.get(major, "flashinfer")


def _kv_cache_dtype(model: Model, server: Mapping[str, Flag], hardware: Hardware) -> str:
    """Sparse attention decides by GPU, everything else by what the checkpoint asks for."""
    said = _text(server, "kv_cache_dtype") or "auto"
    if said != "auto":
        return "bfloat16" if said == "bf16" else said
    if model.architecture.is_sparse:
        return "fp8_e4m3" if _capability(hardware) >= 10 else "bfloat16"
    return "bfloat16" if model.kv_cache_scheme == "auto" else model.kv_cache_scheme


def _plain_sparse_rows(model: Model, server: Mapping[str, Flag], hardware: Hardware) -> bool:
    """`calculate_mla_kv_cache_dim`, `_dsa_split_backend_resolution`: TRT-LLM for either phase, TileLang for both."""
    major = _capability(hardware)
    if major == 12 and model.architecture.model_type == "glm_moe_dsa":
        default = "flashinfer_sparse_mla"
    else:
        default = "trtllm" if major >= 10 else "flashmla_kv"
    kernels = {_text(server, f"dsa_{phase}_backend") or default for phase in ("prefill", "decode")}
    return "trtllm" in kernels or kernels == {"tilelang"}


def _default_chunk(hardware: Hardware) -> int:
    """By GPU memory in GiB (memory_hook.py)."""
    gib = hardware.memory_mib / 1024
    return 2048 if gib < 35 and _capability(hardware) < 10 else 4096 if gib < 60 else 8192 if gib < 160 else 16384


def _decode_batch(
    server: Mapping[str, Flag], parallelism: Parallelism, hardware: Hardware, requests: int | None
) -> int:
    if server.get("disable_cuda_graph") or server.get("disable_decode_cuda_graph"):
        return 0
    if _text(server, "cuda_graph_backend_decode") == "disabled":
        return 0
    if said := _count(server, "cuda_graph_max_bs_decode"):
        return said
    gib, wide = hardware.memory_mib / 1024, parallelism.tp >= 4
    if gib < 20:
        default = 8
    elif gib < 60:
        default = 160 if wide else 32
    else:
        default = 512 if wide or gib >= 160 else 256
    return min(default, requests or default)


def _prefill_graph(server: Mapping[str, Flag], parallelism: Parallelism) -> bool:
    """The breakable prefill graph is on unless it was switched off or cannot be used."""
    if (said := _text(server, "cuda_graph_backend_prefill")) is not None:
        return said != "disabled"
    off = ("disable_cuda_graph", "disable_prefill_cuda_graph", "enable_two_batch_overlap")
    return (
        not any(server.get(flag) for flag in off)
        and parallelism.pp == 1
        and server.get("moe_a2a_backend", "none") in ("none", "deepep", "megamoe", "flashinfer")
    )


def _default_fraction(
    model: Model, parallelism: Parallelism, hardware: Hardware, chunk: int, decode_batch: int, prefill_graph: bool
) -> float:
    """SGLang's own mem_fraction_static (`handle_gpu_memory_settings`), in MiB of reserved memory."""
    chunk = chunk // parallelism.attn_dp if chunk > 0 else 16384
    reserved = 512 + 1.5 * max(chunk, 2048) + parallelism.tp * parallelism.pp * 1024 / 8 + 2 * decode_batch
    if parallelism.attn_dp > 1:
        reserved += decode_batch * parallelism.attn_dp * (4.5 if decode_batch > 300 else 3)
    if prefill_graph:
        reserved += 1536 if model.architecture.is_latent else 8 * _prefill_shapes(chunk)
    if hardware.memory_mib > 60 * 1024:
        reserved = max(reserved, 10 * 1024)
    fraction = round((hardware.memory_mib - reserved) / hardware.memory_mib, 3)
    if (vision := model.architecture.vision_config) is None:
        return fraction
    complexity = vision.vt_num_hidden_layers * vision.vt_hidden_size**2 / (24 * 1024**2)
    return fraction * 0.95 * max(0.8, min(1.05, 1 - 0.1 * (complexity - 1)))


def _prefill_shapes(chunk: int) -> int:
    """How many token counts are captured up to `chunk` (`generate_prefill_cuda_graph_batch_sizes`)."""
    ranges = ((4, 33, 4), (48, 257, 16), (288, 513, 32), (576, 1025, 64), (1280, 4097, 256), (4608, chunk + 1, 512))
    return sum(1 for start, stop, step in ranges for size in range(start, stop, step) if size <= chunk)
