"""A model: what is downloaded, and the dimensions that decide what it needs per GPU. Pure."""

import re
from collections.abc import Mapping
from typing import Final, Literal, Self

from pydantic import Field, model_validator

from roles.documents import Document
from roles.refusal import Refusal, nearest

Part = Literal[
    "embedding",
    "attention",
    "indexer",
    "dense_mlp",
    "shared_experts",
    "router",
    "experts",
    "norms",
    "lm_head",
    "rope",
    "vision",
    "draft",
]
"""What a tensor belongs to. `draft` is whatever speculative decoding adds, MTP layer or draft model."""

Quantization = Literal["none", "fp8", "int4-g32", "nvfp4"]
"""fp8: blocks of 128 x 128; int4-g32: groups of 32 with a bf16 scale; nvfp4: groups of 16 with an fp8 scale."""

QuantizedPart = Literal["attention", "dense_mlp", "shared_experts", "experts", "draft"]

ATTENTION: Final[dict[str, tuple[str, ...]]] = {
    "grouped": ("num_key_value_heads", "head_dim"),
    "latent": ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
    "sparse": (
        "q_lora_rank",
        "kv_lora_rank",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "v_head_dim",
        "index_n_heads",
        "index_head_dim",
        "index_topk",
    ),
}
"""Dimensions that each kind of attention needs: grouped queries, MLA, and MLA with the DSA indexer."""

EXPERTS: Final = ("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size")

MODEL_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "llama": ATTENTION["grouped"],
    "qwen3": ATTENTION["grouped"],
    "qwen3_moe": (*ATTENTION["grouped"], *EXPERTS),
    "deepseek_v2": ATTENTION["latent"],
    "deepseek_v3": (*ATTENTION["latent"], *EXPERTS),
    "kimi_k2": (*ATTENTION["latent"], *EXPERTS),
    "kimi_k25": (*ATTENTION["latent"], *EXPERTS, "vision_config"),
    "deepseek_v32": (*ATTENTION["sparse"], *EXPERTS),
    "glm_moe_dsa": (*ATTENTION["sparse"], *EXPERTS),
}
"""The model types whose memory is known, and the dimensions that each of them must have."""

ELSEWHERE: Final[tuple[Literal["directory", "url", "rsync", "generate"], ...]] = (
    *("directory", "url", "rsync", "generate"),
)
"""Where weights come from if not from the hub."""

ALIASES: Final = {"num_experts": "n_routed_experts", "num_local_experts": "n_routed_experts"}
"""Names that some config.json files use for a dimension."""


class ExpectedFile(Document):
    """One file of a model."""

    bytes: int = Field(ge=0)
    """Its size."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Source(Document):
    """What the weights are (`repository`, `revision`, `files`), and where they come from: the hub, unless one of
    `directory`, `url`, `rsync` and `generate` says otherwise."""

    repository: str | None = Field(None, pattern=r"^[\w.-]+/[\w.-]+$")
    """Hugging Face repository, e.g. `nvidia/GLM-5-NVFP4`."""
    revision: str | None = Field(None, pattern=r"^[0-9a-f]{40}$")
    """Commit of the repository, 40 hex digits; needed where the weights come from the hub."""
    directory: str | None = Field(None, pattern=r"^/[^\n]*[^/\n]$")
    """Directory on the host that holds the weights; its files are linked, or copied if the server may not read."""
    url: str | None = Field(None, pattern=r"^https?://[^/@\s?#]+/([^\s?#]*/)?$")
    """Directory of a web server, with the `slipway-manifest.json` of a host that has the weights; ends with `/`."""
    rsync: str | None = Field(None, pattern=r"^(rsync://[^/@\s]+/[^\n]+|[A-Za-z0-9][\w.@-]*:/[^\n]+)$")
    """Directory on another host, as rsync takes it: `user@host:/path` or `rsync://host/module/path`."""
    generate: Literal["tiny-qwen3", "tiny-qwen3-moe"] | None = None
    """Random weights of a few MB, made on the host: proves a stack without a download."""
    bytes: int | None = Field(None, gt=0)
    """Size of all files together; weights of another size are refused, and so is a disk with less room."""
    files: dict[str, ExpectedFile] = Field(default_factory=dict)
    """The files by name, when no others are accepted, as `files` of a `slipway-manifest.json` has them. Without it:
    what the source has, with the hashes that the source names."""

    @property
    def place(self) -> Literal["hub", "directory", "url", "rsync", "generate"]:
        """Where the weights come from."""
        for place in ELSEWHERE:
            if getattr(self, place) is not None:
                return place
        return "hub"

    @property
    def total(self) -> int | None:
        """Bytes of all files together, where they are declared."""
        return sum(file.bytes for file in self.files.values()) if self.files else self.bytes

    @model_validator(mode="after")
    def one_place(self) -> Self:
        """The weights come from one place, and nothing in the description contradicts itself."""
        places = [place for place in ELSEWHERE if getattr(self, place) is not None]
        if len(places) > 1:
            raise ValueError(f"one of {' and '.join(places)}, not both")
        if not places and self.repository is None:
            raise ValueError(f"one of repository, {', '.join(ELSEWHERE)} is required")
        if self.generate and (self.repository or self.revision or self.files or self.bytes):
            raise ValueError("generate: stands alone")
        for name in self.files:
            if not re.fullmatch(r"[^/\n.][^/\n]*(/[^/\n.][^/\n]*)*", name):
                raise ValueError(f"files: {name!r} is not accepted; use paths below the model's folder, none hidden")
        if self.files and self.bytes not in (None, self.total):
            raise ValueError(f"bytes: {self.bytes}, but the sum of `files` is {self.total}")
        return self


class Vision(Document):
    """The vision tower (MoonViT) and its projector, named as in Kimi's `vision_config`."""

    vt_hidden_size: int = Field(gt=0)
    vt_intermediate_size: int = Field(gt=0)
    vt_num_attention_heads: int = Field(gt=0)
    vt_num_hidden_layers: int = Field(gt=0)
    patch_size: int = Field(gt=0)
    init_pos_emb_height: int = Field(gt=0)
    init_pos_emb_width: int = Field(gt=0)
    merge_kernel_size: tuple[int, int]
    """Patches that the projector merges into one token: height, width."""


class Architecture(Document):
    """Dimensions as the model's own config.json names them, so that either can be read.

    Where config.json nests the language model (`text_config`), its dimensions stand here directly.
    """

    model_type: str
    hidden_size: int = Field(gt=0)
    num_hidden_layers: int = Field(gt=0)
    num_attention_heads: int = Field(gt=0)
    vocab_size: int = Field(gt=0)
    intermediate_size: int = Field(gt=0)
    max_position_embeddings: int = Field(gt=0)
    tie_word_embeddings: bool = False

    num_key_value_heads: int | None = Field(None, gt=0)
    head_dim: int | None = Field(None, gt=0)

    q_lora_rank: int | None = Field(None, gt=0)
    """Absent where MLA projects queries directly."""
    kv_lora_rank: int | None = Field(None, gt=0)
    qk_nope_head_dim: int | None = Field(None, gt=0)
    qk_rope_head_dim: int | None = Field(None, gt=0)
    v_head_dim: int | None = Field(None, gt=0)

    index_n_heads: int | None = Field(None, gt=0)
    index_head_dim: int | None = Field(None, gt=0)
    index_topk: int | None = Field(None, gt=0)
    indexer_types: tuple[Literal["full", "shared"], ...] | None = None
    """One per layer; a layer that shares another's selection has no indexer. Absent: all full."""

    n_routed_experts: int | None = Field(None, gt=0)
    num_experts_per_tok: int | None = Field(None, gt=0)
    n_shared_experts: int = Field(0, ge=0)
    moe_intermediate_size: int | None = Field(None, gt=0)
    first_k_dense_replace: int = Field(0, ge=0)
    """Layers at the start whose MLP is dense (DeepSeek family)."""
    moe_layer_freq: int = Field(1, gt=0)
    """Every n-th layer has experts (DeepSeek family)."""
    decoder_sparse_step: int = Field(1, gt=0)
    """Every n-th layer has experts (Qwen)."""
    mlp_only_layers: tuple[int, ...] = ()
    """Layers whose MLP is dense (Qwen)."""

    num_nextn_predict_layers: int = Field(0, ge=0)
    """MTP layers in the checkpoint."""
    vision_config: Vision | None = None

    draft_vocab_size: int | None = Field(None, gt=0)
    """EAGLE-3 drafts: tokens that the draft can propose."""
    target_layer_ids: tuple[int, ...] = ()
    """DFlash drafts: layers of the target whose hidden states the draft reads."""

    @model_validator(mode="after")
    def complete(self) -> Self:
        """Every dimension that the memory of this model type depends on is there."""
        if self.model_type not in MODEL_TYPES:
            raise ValueError(f"model_type: unknown {self.model_type!r}; {nearest(self.model_type, MODEL_TYPES)}")
        # A draft model is one dense layer under its target's model type.
        optional = EXPERTS if self.num_hidden_layers == 1 else ()
        needed = [name for name in MODEL_TYPES[self.model_type] if name not in optional]
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            raise ValueError(f"{', '.join(missing)}: required for model_type {self.model_type}")
        if self.indexer_types is not None and len(self.indexer_types) < self.num_hidden_layers:
            raise ValueError(f"indexer_types: needs one entry for each of {self.num_hidden_layers} layers")
        return self

    @classmethod
    def of_config(cls, config: Mapping[str, object], source: str) -> Self:
        """The dimensions in a model's config.json, `source` being its path. Raises Refusal."""
        text = config.get("text_config")
        values = {**config, **text, "model_type": config.get("model_type")} if isinstance(text, Mapping) else config
        known = {ALIASES.get(name, name): value for name, value in values.items()}
        known = {name: value for name, value in known.items() if name in cls.model_fields and value is not None}
        if isinstance(vision := known.get("vision_config"), Mapping):
            known["vision_config"] = {k: v for k, v in vision.items() if k in Vision.model_fields}
        if "model_type" not in known:
            raise Refusal(f"{source}: model_type: required, but not given")
        return cls.read(known, source)

    @property
    def is_latent(self) -> bool:
        """Keys and values are one compressed vector per token (MLA)."""
        return self.kv_lora_rank is not None

    @property
    def is_sparse(self) -> bool:
        """MLA with an indexer that selects tokens (DSA)."""
        return self.is_latent and self.index_head_dim is not None

    def has_experts(self, layer: int) -> bool:
        """Whether the MLP of `layer` is a mixture of experts."""
        if self.n_routed_experts is None or layer in self.mlp_only_layers:
            return False
        return (
            layer >= self.first_k_dense_replace
            and layer % self.moe_layer_freq == 0
            and (layer + 1) % self.decoder_sparse_step == 0
        )

    def has_indexer(self, layer: int) -> bool:
        """Whether `layer` selects tokens itself; an MTP layer (beyond the last) always does."""
        if not self.is_sparse:
            return False
        types = self.indexer_types
        return types is None or layer >= len(types) or types[layer] == "full"


class Model(Document):
    """group_vars/models/<name>.yml"""

    name: str
    """The file's name."""
    description: str
    source: Source
    quantization: Quantization = "none"
    """How the checkpoint stores the weights of the quantised parts."""
    quantized_parts: tuple[QuantizedPart, ...] = ()
    """Which parts of the model are stored that way; everything else is bf16."""
    kv_cache_scheme: Literal["auto", "fp8_e4m3"] = "auto"
    """The KV cache type that the checkpoint asks for, used when the profile leaves `kv_cache_dtype` on auto."""
    trust_remote_code: bool = False
    """The model brings Python code that must be run."""
    architecture: Architecture

    @model_validator(mode="after")
    def quantized_consistently(self) -> Self:
        """A quantised checkpoint says which parts it means."""
        if (self.quantization == "none") != (not self.quantized_parts):
            raise ValueError("quantized_parts: required with a quantization, and only then")
        return self
