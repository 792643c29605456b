"""Make a model of a few MB with random weights: python tiny.py --kind tiny-qwen3 --out DIR

Runs on the host, with the Python of a release (needs torch, transformers and tokenizers), and touches no network.
The same kind gives the same weights everywhere. DIR is complete or not there; an existing DIR is left alone.
"""

import argparse
import shutil
from pathlib import Path

import torch
from tokenizers import (  # type: ignore[import-not-found]
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
)
from transformers import (  # type: ignore[import-not-found]
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

VOCABULARY = 512
END, TURN_BEGINS, TURN_ENDS = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

DIMENSIONS = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "bos_token_id": None,
}

EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}


def tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte: any text is accepted, and the number of tokens is the number of bytes."""
    special = [END, TURN_BEGINS, TURN_ENDS]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(alphabet + special)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=TURN_ENDS,
        pad_token=END,
        additional_special_tokens=[TURN_BEGINS],
        chat_template=CHAT_TEMPLATE,
        model_max_length=DIMENSIONS["max_position_embeddings"],
    )


def make(kind: str, folder: Path) -> None:
    """Write the model's files to `folder`."""
    torch.manual_seed(0)
    words = tokenizer()
    ends = {"eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id}
    if kind == "tiny-qwen3":
        model = Qwen3ForCausalLM(Qwen3Config(**DIMENSIONS, **ends))
    else:
        model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**DIMENSIONS, **EXPERTS, **ends))
    model.to(torch.bfloat16).save_pretrained(folder)
    words.save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a tiny model with random weights.")
    parser.add_argument("--kind", choices=["tiny-qwen3", "tiny-qwen3-moe"], required=True)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    arguments = parser.parse_args()
    out: Path = arguments.out
    if out.exists():
        return
    new = out.with_name(f"{out.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    make(arguments.kind, new)
    # safetensors writes its files for their owner alone; the server is another user.
    new.chmod(0o755)
    for path in new.iterdir():
        path.chmod(0o644)
    new.rename(out)


if __name__ == "__main__":
    main()
