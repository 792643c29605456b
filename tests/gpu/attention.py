"""Does flash-attn compute what torch computes? Run by the Python of a release, with flash_attn on PYTHONPATH.

Causal attention and its gradients in bf16 against float64, for the head dimensions of the models; exits otherwise.
"""

import sys

HEAD_DIMENSIONS = (64, 128, 256)
TOLERANCE = 0.01
"""Relative error; bf16 alone makes some 0.003."""


def main() -> None:
    import torch
    from flash_attn import flash_attn_func  # type: ignore[import-not-found]

    torch.manual_seed(0)
    for width in HEAD_DIMENSIONS:
        shape = (2, 777, 8, width)
        given = [torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
        exact = [tensor.detach().double().requires_grad_() for tensor in given]
        out, wanted = flash_attn_func(*given, causal=True), reference(*exact)
        gradient = torch.randn_like(out)
        out.backward(gradient)
        wanted.backward(gradient.double())
        pairs = [(out, wanted), *((ours.grad, theirs.grad) for ours, theirs in zip(given, exact, strict=True))]
        errors = [float((ours.double() - theirs).norm() / theirs.norm()) for ours, theirs in pairs]
        print(f"head dimension {width}: relative errors " + ", ".join(f"{error:.4f}" for error in errors), flush=True)
        if not all(error < TOLERANCE for error in errors):
            sys.exit("flash-attn computes something else")


def reference(query, key, value):  # type: ignore[no-untyped-def]
    """Causal attention, written out; (batch, sequence, heads, width)."""
    import torch

    query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
    scores = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return (scores.masked_fill(later, float("-inf")).softmax(-1) @ value).transpose(1, 2)


if __name__ == "__main__":
    main()
