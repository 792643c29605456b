"""Whether a profile can be served by a host, and why not. Pure."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from roles.preflight.hardware import Hardware
from roles.refusal import Refusal
from roles.serve.memory import Estimate, Verdict, estimate
from roles.serve.parallelism import check, on_cpu
from roles.serve.profile import Profile
from roles.weights.model import Model


class Suitability(NamedTuple):
    """What is to be said of a profile on a host before it is loaded there."""

    reasons: Sequence[str] = ()
    """Why it cannot be served, one sentence each; empty if it can."""
    tight: str | None = None
    """Why its memory may not suffice, and what to do; None if it surely does, or if nothing is known of it."""


def suitability(
    profile: Profile,
    model: Model,
    hardware: Hardware | None,
    draft: Model | None = None,
    known: Mapping[str, Profile] | None = None,
) -> Suitability:
    """Whether `profile` can be served on `hardware`; None: nothing is known of the host's GPUs.

    `draft` is the profile's draft model; `known` are the site's profiles, of which a refusal may name one.
    """
    reasons = _devices(profile, hardware)
    if hardware is not None and not reasons:
        reasons = [*check(profile, model, hardware, known), *_capability(model, hardware)]
    if reasons or hardware is None or on_cpu(profile) or not hardware.memory_mib:
        return Suitability(reasons)
    try:
        return _memory(estimate(model, profile, hardware, draft))
    except Refusal as refusal:
        return Suitability([str(refusal)])


def tight(memory: Estimate) -> str | None:
    """What is to be said of memory that may not suffice; None if it surely does, or surely does not."""
    if memory.verdict is not Verdict.TIGHT:
        return None
    advice = f"{memory.change.direction} {memory.change.flag}, or " if memory.change else ""
    return f"its memory is tight: {memory.breaks}; {advice}set serve_accept_tight: true to try"


def _devices(profile: Profile, hardware: Hardware | None) -> list[str]:
    if hardware is None:
        problem = "the host's GPUs are not known before a driver answers: declare the variable `hardware`"
        return [] if on_cpu(profile) else [problem]
    if on_cpu(profile) and hardware.gpus:
        return ["it serves on the CPU, and the host has GPUs"]
    if not on_cpu(profile) and not hardware.gpus:
        return ["it needs GPUs, and the host has none"]
    return []


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


def _memory(predicted: Estimate) -> Suitability:
    if predicted.verdict is not Verdict.NO:
        return Suitability(tight=tight(predicted))
    advice = f"; {predicted.change.direction} {predicted.change.flag}" if predicted.change else ""
    return Suitability([f"out of memory: {predicted.breaks}{advice}"])
