"""flash-attn 2 in the release of SGLang."""
