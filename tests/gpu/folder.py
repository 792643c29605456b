"""A model's folder without weights: its JSON files, and a tokenizer that needs nothing but them."""

import json
from pathlib import Path
from typing import Final

from roles.weights.config_files import config_files
from roles.weights.model import Model

END: Final = "<|endoftext|>"
CHAT_TEMPLATE: Final = "{% for message in messages %}{{ message['content'] }} {% endfor %}"


def write(model: Model, folder: Path) -> Path:
    """Write the files of `model` into `folder`, which SGLang's `load_format: dummy` then serves."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in {**config_files(model), **_tokenizer(model)}.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


def _tokenizer(model: Model) -> dict[str, object]:
    """As many words as the model has tokens, separated by blanks: any sequence of ids becomes text and back."""
    words = {END: 0} | {f"w{number}": number for number in range(1, model.architecture.vocab_size)}
    marked = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "tokenizer.json": {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [{"id": 0, "content": END, **marked}],
            "normalizer": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": None,
            "decoder": None,
            "model": {"type": "WordLevel", "vocab": words, "unk_token": END},
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": END,
            "pad_token": END,
            "unk_token": END,
            "chat_template": CHAT_TEMPLATE,
            "model_max_length": model.architecture.max_position_embeddings,
        },
    }
