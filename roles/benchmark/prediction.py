"""What a profile is expected to need and can reach at most, in a record's terms. Pure."""

from roles.benchmark.record import Ceiling, Prediction
from roles.preflight.hardware import Hardware
from roles.serve.buffers import GIB
from roles.serve.ceiling import Load, decode_ceiling
from roles.serve.memory import estimate
from roles.serve.profile import Profile
from roles.weights.model import Model


def prediction(profile: Profile, model: Model, draft: Model | None, hardware: Hardware | None) -> Prediction | None:
    """None where nothing is known of the hardware, or it has no GPU."""
    if hardware is None or not hardware.gpus:
        return None
    return Prediction(
        memory=_memory(profile, model, draft, hardware) if hardware.memory_mib else {},
        ceilings=tuple(
            Ceiling(traffic=name, concurrency=concurrency, output_tokens_per_second=ceiling)
            for name, shape in profile.benchmark.traffic.items()
            for concurrency in profile.benchmark.concurrencies
            # In the middle of a request half of its output is in the KV cache.
            for load in [Load(concurrency, shape.input_tokens + shape.output_tokens / 2)]
            if (ceiling := decode_ceiling(profile, model, hardware, load)) is not None
        ),
    )


def _memory(profile: Profile, model: Model, draft: Model | None, hardware: Hardware) -> dict[str, float]:
    """By the names of `output.memory`, and as a server counts: its first stage, without a draft."""
    expected = estimate(model, profile, hardware, draft)
    return {
        "weights_gib": expected.reported_weights / GIB,
        "kv_cache_gib": expected.reported_kv_cache / GIB,
        "graphs_gib": sum(buffer.bytes for buffer in expected.buffers if buffer.captured) / GIB,
        "free_when_ready_gib": (expected.outside - expected.buffers_total) / GIB,
        "kv_cache_tokens": expected.tokens,
    }
