"""A model: what is downloaded, and the dimensions that decide what it needs per GPU. Pure."""

from typing import Literal

from pydantic import Field

from roles.documents import Document


class Source(Document):
    """Where the weights come from. Exactly one of the fields is set."""

    repository: str | None = None
    """Hugging Face repository, e.g. `nvidia/GLM-5-NVFP4`."""
    revision: str | None = Field(None, pattern=r"^[0-9a-f]{40}$")
    """Commit of the repository, 40 hex digits; required with `repository`."""
    generate: Literal["tiny-qwen3", "tiny-qwen3-moe"] | None = None
    """Random weights of a few MB, made on the host: proves a stack without a download."""


class Architecture(Document):
    """Dimensions as the model's own config.json names them, so that either can be read."""

    model_type: str
    hidden_size: int = Field(gt=0)
    num_hidden_layers: int = Field(gt=0)
    num_attention_heads: int = Field(gt=0)
    vocab_size: int = Field(gt=0)


class Model(Document):
    """group_vars/models/<name>.yml"""

    name: str
    """The file's name."""
    description: str
    source: Source
    quantization: Literal["none", "fp8", "int4-g32", "nvfp4"] = "none"
    """How the checkpoint stores the weights of the quantised layers."""
    trust_remote_code: bool = False
    """The model brings Python code that must be run."""
    architecture: Architecture
