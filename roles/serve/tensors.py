"""The tensors of a model: how each is stored, and over which ranks it is shared out. Pure.

The rules are those of SGLang 0.5.23's models (deepseek_v2.py, qwen3.py, qwen3_moe.py, kimi_k25.py and the draft
models) and of what its weight loaders leave resident. Left out: scalars beside the tensors, below 0.01 %.
"""

from collections import Counter
from collections.abc import Iterator
from enum import Enum
from math import ceil, prod
from typing import Final, NamedTuple

from roles.refusal import Refusal
from roles.serve.placement import Placement, Sharing, Split
from roles.weights.model import Architecture, Model, Part, QuantizedPart

VOCABULARY_PADDING: Final = 64
"""SGLang rounds the vocabulary up to a multiple of this (vocab_parallel_embedding.py)."""

HEAD_ON_EVERY_STAGE: Final = frozenset({"qwen3_moe"})
"""Model types whose output head SGLang makes on every pipeline stage, though only the last uses it."""

MTP_ALGORITHMS: Final = frozenset({"EAGLE", "NEXTN"})
"""Speculative algorithms that use the model's own MTP layer when no draft model is given."""

WITHOUT_DRAFT: Final = frozenset({"NGRAM"})
"""Speculative algorithms that propose tokens without any weights."""


class Storage(Enum):
    """How the elements of a matrix are stored."""

    BF16 = "bf16"
    FP32 = "fp32"
    FP8 = "fp8"
    INT4_G32 = "int4-g32"
    NVFP4 = "nvfp4"

    def bytes(self, rows: int, columns: int) -> int:
        """Bytes of a matrix with its scales: an fp32 per 128 x 128 (fp8), a bf16 per 32, an fp8 per 16 (nvfp4)."""
        match self:
            case Storage.BF16:
                return 2 * rows * columns
            case Storage.FP32:
                return 4 * rows * columns
            case Storage.FP8:
                return rows * columns + 4 * ceil(rows / 128) * ceil(columns / 128)
            case Storage.INT4_G32:
                return rows * columns // 2 + 2 * rows * ceil(columns / 32)
            case Storage.NVFP4:
                return rows * columns // 2 + rows * ceil(columns / 16)


class Weight(NamedTuple):
    """One tensor (or one that SGLang fuses from several), of the whole model.

    `split_rows` says whether rows (output features) or columns (input features) are shared out.
    """

    name: str
    part: Part
    rows: int
    columns: int = 1
    split: Split = Split.NOT
    split_rows: bool = True
    storage: Storage = Storage.BF16
    experts: int = 1
    """Copies with other values: the routed experts of a layer."""
    in_checkpoint: bool = True
    """False for what SGLang computes when it loads: a second copy of MLA's kv_b, position tables."""

    @property
    def bytes(self) -> int:
        """Bytes of the undivided tensor."""
        return self.experts * self.storage.bytes(self.rows, self.columns)

    def bytes_on_rank(self, sharing: "Sharing") -> int:
        """Bytes on one rank; all ranks of a stage hold the same."""
        share = sharing.of(self.split)
        rows, columns = (
            (ceil(self.rows / share), self.columns) if self.split_rows else (self.rows, ceil(self.columns / share))
        )
        experts = (
            ceil(self.experts / sharing.ep) if self.split in (Split.EXPERTS, Split.WHOLE_EXPERTS) else self.experts
        )
        return experts * self.storage.bytes(rows, columns)


def stage_weights(model: Model, placement: Placement, stage: int) -> Iterator[tuple[Weight, int]]:
    """The tensors of one pipeline stage and how often each occurs."""
    a = model.architecture
    layers = placement.stages[stage]
    first, last = stage == 0, stage == len(placement.stages) - 1
    vocabulary = VOCABULARY_PADDING * ceil(a.vocab_size / VOCABULARY_PADDING)
    if first:
        yield Weight("embed_tokens", "embedding", vocabulary, a.hidden_size, Split.ATTENTION), 1
    if last:
        yield Weight("norm", "norms", a.hidden_size), 1
    own_head = not a.tie_word_embeddings or len(placement.stages) > 1
    if own_head and (last or a.model_type in HEAD_ON_EVERY_STAGE):
        yield Weight("lm_head", "lm_head", vocabulary, a.hidden_size, placement.lm_head_split), 1
    yield _rope(a), 1
    kinds = Counter((a.has_experts(layer), a.has_indexer(layer)) for layer in layers)
    for (has_experts, has_indexer), copies in kinds.items():
        for weight in _layer(model, placement, has_experts, has_indexer):
            yield weight, copies
    if a.vision_config and not placement.language_only:
        for weight, copies in _vision(a, placement):
            yield weight, copies


def _rope(a: Architecture) -> Weight:
    """cos and sin of every position, in fp32, once for all layers."""
    width = a.qk_rope_head_dim if a.is_latent else a.head_dim
    return Weight(
        "cos_sin_cache", "rope", a.max_position_embeddings, width or 0, storage=Storage.FP32, in_checkpoint=False
    )


def _layer(model: Model, placement: Placement, has_experts: bool, has_indexer: bool) -> Iterator[Weight]:
    a = model.architecture
    yield Weight("input_layernorm, post_attention_layernorm", "norms", 2 * a.hidden_size)
    yield from _latent_attention(a, _storage(model, "attention")) if a.is_latent else _grouped_attention(a)
    if has_indexer:
        yield from _indexer(a)
    if has_experts:
        yield from _experts(model, placement)
    else:
        yield from _mlp(
            a.hidden_size, a.intermediate_size, "dense_mlp", placement.dense_mlp_split, _storage(model, "dense_mlp")
        )


def _storage(model: Model, part: QuantizedPart) -> Storage:
    if part not in model.quantized_parts:
        return Storage.BF16
    return Storage(model.quantization)


def _grouped_attention(a: Architecture, inputs: int = 1) -> Iterator[Weight]:
    """`inputs` hidden states enter side by side (EAGLE-3's first layer: 2)."""
    heads, kv_heads, width = a.num_attention_heads, a.num_key_value_heads or 0, a.head_dim or 0
    columns = inputs * a.hidden_size
    yield Weight("q_proj", "attention", heads * width, columns, Split.ATTENTION)
    yield Weight("k_proj, v_proj", "attention", 2 * kv_heads * width, columns, Split.KV_HEADS)
    yield Weight("o_proj", "attention", a.hidden_size, heads * width, Split.ATTENTION, split_rows=False)
    if a.model_type.startswith("qwen3"):
        yield Weight("q_norm, k_norm", "norms", 2 * width)


def _latent_attention(a: Architecture, storage: Storage, inputs: int = 1) -> Iterator[Weight]:
    """MLA; `inputs` hidden states enter side by side (EAGLE-3's layer: 2)."""
    heads, latent = a.num_attention_heads, a.kv_lora_rank or 0
    nope, rope, value = a.qk_nope_head_dim or 0, a.qk_rope_head_dim or 0, a.v_head_dim or 0
    columns = inputs * a.hidden_size
    if a.q_lora_rank:
        yield Weight(
            "q_a_proj, kv_a_proj_with_mqa", "attention", a.q_lora_rank + latent + rope, columns, storage=storage
        )
        yield Weight("q_a_layernorm", "norms", a.q_lora_rank)
        yield Weight("q_b_proj", "attention", heads * (nope + rope), a.q_lora_rank, Split.ATTENTION, storage=storage)
    else:
        yield Weight("kv_a_proj_with_mqa", "attention", latent + rope, columns, storage=storage)
        yield Weight("q_proj", "attention", heads * (nope + rope), columns, Split.ATTENTION, storage=storage)
    yield Weight("kv_a_layernorm", "norms", latent)
    yield Weight("kv_b_proj", "attention", heads * (nope + value), latent, Split.ATTENTION, storage=storage)
    yield Weight("w_kc, w_vc", "attention", heads * (nope + value), latent, Split.ATTENTION, in_checkpoint=False)
    yield Weight(
        "o_proj", "attention", a.hidden_size, heads * value, Split.ATTENTION, split_rows=False, storage=storage
    )


def _indexer(a: Architecture) -> Iterator[Weight]:
    heads, width = a.index_n_heads or 0, a.index_head_dim or 0
    yield Weight("indexer.wq_b", "indexer", heads * width, a.q_lora_rank or 0)
    yield Weight("indexer.wk, indexer.weights_proj", "indexer", width + heads, a.hidden_size)
    yield Weight("indexer.k_norm", "indexer", 2 * width, storage=Storage.FP32)


def _mlp(hidden: int, inner: int, part: Part, split: Split, storage: Storage, experts: int = 1) -> Iterator[Weight]:
    prefix = "" if part == "dense_mlp" else f"{part}."
    yield Weight(f"{prefix}gate_proj, up_proj", part, 2 * inner, hidden, split, storage=storage, experts=experts)
    yield Weight(f"{prefix}down_proj", part, hidden, inner, split, split_rows=False, storage=storage, experts=experts)


def _experts(model: Model, placement: Placement) -> Iterator[Weight]:
    a = model.architecture
    experts, inner = a.n_routed_experts or 0, a.moe_intermediate_size or 0
    storage = _storage(model, "experts")
    held = experts + placement.redundant_experts
    yield Weight("gate", "router", experts, a.hidden_size)
    yield from _mlp(a.hidden_size, inner, "experts", Split.EXPERTS, storage, held)
    if storage is Storage.INT4_G32 and placement.keeps_group_index:
        # An index per input feature and its sort order, int32, for both matrices of each expert.
        for name, width, shared_over in (
            ("gate, up", a.hidden_size, Split.WHOLE_EXPERTS),
            ("down", inner, Split.EXPERTS),
        ):
            yield Weight(
                f"g_idx of {name}",
                "experts",
                2 * width,
                1,
                shared_over,
                True,
                Storage.FP32,
                held,
                in_checkpoint=False,
            )
    if a.n_shared_experts:
        shared = _storage(model, "shared_experts")
        yield from _mlp(
            a.hidden_size, inner * a.n_shared_experts, "shared_experts", placement.shared_experts_split, shared
        )


def _vision(a: Architecture, placement: Placement) -> Iterator[tuple[Weight, int]]:
    """MoonViT and projector: only the attention is divided, and every pipeline stage holds all of it."""
    v = a.vision_config
    assert v is not None
    width, inner, merged = v.vt_hidden_size, v.vt_intermediate_size, prod(v.merge_kernel_size) * v.vt_hidden_size
    layers = v.vt_num_hidden_layers
    split = placement.vision_split
    yield Weight("patch_embed", "vision", width, 3 * v.patch_size**2 + 1), 1
    yield Weight("pos_emb", "vision", v.init_pos_emb_height * v.init_pos_emb_width, width), 1
    yield Weight("blocks.wqkv", "vision", 3 * width, width + 1, split), layers
    yield Weight("blocks.wo", "vision", width, width, split, split_rows=False), layers
    yield Weight("blocks.mlp", "vision", 2 * inner, width), layers
    yield Weight("blocks.norms, biases", "vision", 6 * width + inner), layers
    yield Weight("projector.linear_1", "vision", merged, merged + 1), 1
    yield Weight("projector.linear_2", "vision", a.hidden_size, merged + 1), 1
    yield Weight("final_layernorm, projector.pre_norm", "vision", 4 * width), 1


def draft_weights(model: Model, draft: Model | None, algorithm: str, placement: Placement) -> list[Weight]:
    """What speculative decoding holds on the last stage when the KV cache is sized.

    The draft's own embedding and head are among it: SGLang gives them up for the target's only later.
    """
    if draft is not None:
        return _draft_model_weights(model, draft, algorithm)
    if algorithm in WITHOUT_DRAFT:
        return []
    if algorithm not in MTP_ALGORITHMS:
        raise Refusal(f"draft: required for server.speculative_algorithm {algorithm}")
    if not model.architecture.num_nextn_predict_layers:
        raise Refusal(f"draft: required, because model {model.name} has no MTP layer for {algorithm}")
    return mtp_weights(model, placement)


def mtp_weights(model: Model, placement: Placement) -> list[Weight]:
    """The MTP layer as a draft (deepseek_nextn.py); SGLang loads one."""
    a = model.architecture
    placement = placement._replace(shared_experts_split=placement.draft_shared_experts_split)
    quantized = "draft" in model.quantized_parts
    layer_model = model if quantized else model.model_copy(update={"quantization": "none", "quantized_parts": ()})
    # An NVFP4 checkpoint names no exception for the draft's head, so SGLang makes room for it as NVFP4.
    head = Storage.NVFP4 if model.quantization == "nvfp4" else Storage.BF16
    return [
        Weight("eh_proj", "draft", a.hidden_size, 2 * a.hidden_size),
        Weight("enorm, hnorm, shared_head.norm", "draft", 3 * a.hidden_size),
        *_layer(layer_model, placement, a.n_routed_experts is not None, a.is_sparse),
        *_embedding_and_head(a, head, in_checkpoint=False),
    ]


def _draft_model_weights(model: Model, draft: Model, algorithm: str) -> list[Weight]:
    """A draft model of its own: EAGLE-3 (llama_eagle3.py, kimi_k25_eagle3.py), DFlash (dflash.py), any other."""
    a = draft.architecture
    if algorithm == "EAGLE3":
        return _eagle3(a, model.architecture.hidden_size)
    one_stage = Placement(stages=(range(a.num_hidden_layers),))
    layers = [w for _ in one_stage.stages[0] for w in _layer(draft, one_stage, has_experts=False, has_indexer=False)]
    if algorithm == "DFLASH":
        features = len(a.target_layer_ids) or a.num_hidden_layers
        fc = Weight("fc", "draft", a.hidden_size, features * model.architecture.hidden_size)
        return [fc, Weight("hidden_norm, norm", "draft", 2 * a.hidden_size), *layers]
    return [*layers, *_embedding_and_head(a, Storage.BF16)]


def _eagle3(a: Architecture, target_hidden: int) -> list[Weight]:
    """One layer that reads the token and three of the target's hidden states."""
    auxiliary = len(a.target_layer_ids) or 3
    embedding, head = _embedding_and_head(a, Storage.BF16)
    return [
        Weight(
            "fc", "draft", a.hidden_size, auxiliary * target_hidden, Split.ATTENTION if a.is_latent else Split.NOT
        ),
        Weight("input_layernorm, hidden_norm, post_attention_layernorm, norm", "draft", 4 * a.hidden_size),
        *(_latent_attention(a, Storage.BF16, inputs=2) if a.is_latent else _grouped_attention(a, inputs=2)),
        *_mlp(a.hidden_size, a.intermediate_size, "dense_mlp", Split.TENSOR, Storage.BF16),
        embedding,
        head._replace(rows=a.draft_vocab_size) if a.draft_vocab_size else head,
    ]


def _embedding_and_head(a: Architecture, head: Storage, in_checkpoint: bool = True) -> tuple[Weight, Weight]:
    rows = VOCABULARY_PADDING * ceil(a.vocab_size / VOCABULARY_PADDING)
    embedding = Weight("embed_tokens", "draft", rows, a.hidden_size, Split.ATTENTION, in_checkpoint=in_checkpoint)
    return embedding, embedding._replace(name="lm_head", split=Split.TENSOR, storage=head)
