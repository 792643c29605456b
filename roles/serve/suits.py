"""Whether a profile can be served by a host, and why not. Pure."""

from collections.abc import Mapping

from roles.preflight.hardware import Hardware
from roles.refusal import Refusal
from roles.serve.memory import Verdict, estimate
from roles.serve.parallelism import check, on_cpu
from roles.serve.profile import Profile
from roles.weights.model import Model


def suits(
    profile: Profile,
    model: Model,
    hardware: Hardware | None,
    draft: Model | None = None,
    known: Mapping[str, Profile] | None = None,
) -> list[str]:
    """Why `profile` cannot be served on `hardware`; empty if it can. None: nothing is known of the host's GPUs.

    `draft` is the profile's draft model; `known` are the site's profiles, of which a refusal may name one.
    """
    if hardware is None:
        return [] if on_cpu(profile) else ["the host's GPUs are not known: declare the variable `hardware`"]
    if on_cpu(profile) and hardware.gpus:
        return ["it serves on the CPU, and the host has GPUs"]
    if not on_cpu(profile) and not hardware.gpus:
        return ["it needs GPUs, and the host has none"]
    return [
        *check(profile, model, hardware, known),
        *_capability(model, hardware),
    ] or _memory(profile, model, hardware, draft)


def _capability(model: Model, hardware: Hardware) -> list[str]:
    """What the kernels ask of the GPU: `get_min_capability` of fp8, compressed-tensors and modelopt_fp4 in
    layers/quantization, and layers/deep_gemm_wrapper/configurer.py for the indexer of sparse attention."""
    if not hardware.compute_capability:
        return []
    major = int(hardware.compute_capability.partition(".")[0])
    problems = []
    if model.quantization != "none" and major < 8:
        problems.append(
            f"{model.quantization} weights need compute capability 8.0, not {hardware.compute_capability}"
        )
    if model.architecture.is_sparse and major < 9:
        problems.append(f"sparse attention needs compute capability 9.0, not {hardware.compute_capability}")
    return problems


def _memory(profile: Profile, model: Model, hardware: Hardware, draft: Model | None) -> list[str]:
    if on_cpu(profile) or not hardware.memory_mib:
        return []
    try:
        predicted = estimate(model, profile, hardware, draft)
    except Refusal as refusal:
        return [str(refusal)]
    if predicted.verdict is not Verdict.NO:
        return []
    advice = f"; {predicted.change.direction} {predicted.change.flag}" if predicted.change else ""
    return [f"out of memory: {predicted.breaks}{advice}"]
