"""What is tried on one GPU: every kind of attention and of stored weights, both edges of what fits, and failures.

Sizes are such that an H200 (141 GB) holds them; with several GPUs, every way to spread a model. Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, floor
from typing import Final, Literal

from roles.benchmark.benchmark import Benchmark
from roles.preflight.hardware import Hardware
from roles.serve.memory import estimate
from roles.serve.profile import Flag, Profile
from roles.weights.model import Model
from tests.gpu.documents import cut, model, text_only, variant

READY: Final = "ready"
EDGE: Final = 0.003
"""How far outside of an edge of the feasible fractions a server must fail: B is off by less."""

GATE: Final = Benchmark.read(
    {
        "concurrencies": [64, 256],
        "requests_per_slot": 2,
        "traffic": {"chat": {"input_tokens": 512, "output_tokens": 128}},
    },
    "the gate",
)

Obstacle = Literal["", "unknown flag", "port in use", "no weights"]


@dataclass(frozen=True)
class Case:
    """A profile, its model, and what must come of it."""

    profile: Profile
    model: Model
    expected: str = READY
    """READY, or the kind of failure as roles/serve/failures.yml names it."""
    obstacle: Obstacle = ""
    """What is put into the server's way."""
    traffic: Literal["", "declared", "gate"] = ""
    """`declared`: it must serve as many long requests at once as it declares; `gate`: it is measured and judged."""

    @property
    def name(self) -> str:
        return self.profile.name


def cases(hardware: Hardware) -> tuple[Case, ...]:
    """Every case; names are unique."""
    return (*_gate(), *_memory(), *_edges(hardware), *_failures(), *_spread(hardware.gpus))


def _models() -> dict[str, Model]:
    kimi = text_only(model("kimi-k2.6"))
    plain = variant(kimi, quantization="none", quantized_parts=())
    blocks = variant(
        kimi, quantization="fp8", quantized_parts=("attention", "dense_mlp", "shared_experts", "experts")
    )
    glm = variant(model("glm-5-nvfp4"), quantization="none", quantized_parts=(), kv_cache_scheme="auto")
    return {
        "dense": model("qwen3-8b"),
        "experts": model("qwen3-30b-a3b"),
        "int4": cut(kimi, 9),
        "latent": cut(plain, 4),
        "latent-mtp": cut(variant(plain, num_nextn_predict_layers=1), 2),
        "fp8": cut(blocks, 3),
        "sparse": cut(variant(glm, num_nextn_predict_layers=0), 7),
        "mtp": cut(glm, 4),
        "too-large": cut(kimi, 17),
    }


MODELS: Final = _models()

MTP: Final[dict[str, Flag]] = {
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 1,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 2,
    "max_running_requests": 64,
}

WITHOUT_PREFILL_GRAPH: Final = ("int4", "latent", "latent-mtp", "fp8", "too-large")
"""SGLang 0.5.17 captures none with MLA, 0.5.23 does: these models are served without, so that both do the same."""

FP8: Final[dict[str, Flag]] = {"kv_cache_dtype": "fp8_e4m3"}


def profile(name: str, of: Model, server: dict[str, Flag], benchmark: Benchmark | None = None) -> Profile:
    """A profile that serves `of` with random weights."""
    values: dict[str, object] = {"benchmark": benchmark} if benchmark else {}
    return Profile.read(
        {
            "name": name,
            "description": "",
            "model": of.name,
            "server": {"load_format": "dummy", **server},
            "smoke": {"readable": False, "requests": 96},
            **values,
        },
        name,
    )


def _case(name: str, kind: str, server: dict[str, Flag], **expectation: object) -> Case:
    benchmark = GATE if expectation.get("traffic") == "gate" else None
    server = {**_graphs(kind), **server}
    return Case(profile(name, MODELS[kind], server, benchmark), MODELS[kind], **expectation)  # type: ignore[arg-type]


def _graphs(kind: str) -> dict[str, Flag]:
    return {"disable_prefill_cuda_graph": True} if kind in WITHOUT_PREFILL_GRAPH else {}


def _gate() -> Iterator[Case]:
    for name in ("gate", "gate-restarted"):  # what a restart alone changes
        yield _case(name, "dense", {}, traffic="gate")


def _memory() -> Iterator[Case]:
    asked: tuple[tuple[str, str, dict[str, Flag]], ...] = (
        ("dense", "dense", {"mem_fraction_static": 0.85}),
        ("dense, fp8 cache", "dense", {"mem_fraction_static": 0.6, **FP8}),
        ("experts", "experts", {}),
        ("experts, fp8 cache", "experts", {"mem_fraction_static": 0.75, **FP8}),
        ("int4", "int4", {}),
        ("int4, 256 requests", "int4", {"mem_fraction_static": 0.8, "max_running_requests": 256}),
        ("int4, triton", "int4", {"attention_backend": "triton", "max_running_requests": 64}),
        (
            "int4, triton, fp8 cache",
            "int4",
            {"attention_backend": "triton", "mem_fraction_static": 0.85, "max_running_requests": 64, **FP8},
        ),
        ("latent", "latent", {}),
        ("latent, fp8 cache", "latent", {"mem_fraction_static": 0.8, "max_running_requests": 256, **FP8}),
        ("sparse", "sparse", {"mem_fraction_static": 0.85}),
        ("sparse, fp8 cache", "sparse", {"mem_fraction_static": 0.8, **FP8}),
        ("fp8", "fp8", {"mem_fraction_static": 0.7}),
        ("fp8, fp8 cache", "fp8", {"mem_fraction_static": 0.5, "max_running_requests": 64, **FP8}),
        ("mtp", "mtp", {"mem_fraction_static": 0.85, **MTP}),
        ("latent, mtp", "latent-mtp", {"mem_fraction_static": 0.8, **MTP}),
    )
    for name, kind, server in asked:
        yield _case(name.replace(", ", "-").replace(" ", "-"), kind, server)


def _spread(gpus: int) -> Iterator[Case]:
    """The same model in each way over all GPUs of this machine; nothing where there is one."""
    if gpus == 1:
        return
    ways: dict[str, dict[str, Flag]] = {
        "tp": {"tp_size": gpus},
        "tp-ep": {"tp_size": gpus, "ep_size": gpus},
        "pp": {"pp_size": gpus},
        "attn-dp": {"tp_size": gpus, "attn_dp_size": gpus},
    }
    if gpus > 2:
        ways["tp-pp"] = {"tp_size": gpus // 2, "pp_size": 2}
    for way, sizes in ways.items():
        yield _case(f"int4-{way}", "int4", {"mem_fraction_static": 0.85, "max_running_requests": 64, **sizes})


def _edges(hardware: Hardware) -> Iterator[Case]:
    """Both edges of the fractions that are feasible, and of those that are safe, for two kinds of attention."""
    for kind in ("dense", "int4"):
        few = {"max_running_requests": 64, "context_length": 16384, **_graphs(kind)}
        expected = estimate(MODELS[kind], profile(kind, MODELS[kind], few), hardware)
        fractions = {
            "too-low": expected.feasible.low - EDGE,
            "lowest": expected.safe.low,
            "highest": expected.safe.high,
            "too-high": expected.feasible.high + EDGE,
        }
        for edge, fraction in fractions.items():
            server = {**few, "mem_fraction_static": (ceil if edge == "lowest" else floor)(fraction * 1e4) / 1e4}
            name = f"{kind}-{edge}"
            if edge == "too-low":
                yield _case(name, kind, server, expected="memory fraction too low")
            elif edge == "too-high":
                yield _case(name, kind, server, expected="out of memory", traffic="declared")
            else:
                yield _case(name, kind, server, traffic="declared")


def _failures() -> Iterator[Case]:
    yield _case("unknown-flag", "dense", {}, expected="unknown flag", obstacle="unknown flag")
    yield _case("port-in-use", "dense", {}, expected="port in use", obstacle="port in use")
    yield _case("no-weights", "dense", {"load_format": "auto"}, expected="weights missing", obstacle="no weights")
    yield _case("too-large", "too-large", {"mem_fraction_static": 0.9}, expected="out of memory loading weights")
    yield _case("too-much-cache", "int4", {"mem_fraction_static": 0.99}, expected="out of memory in the KV pool")
    yield _case(
        "fp8-latent-on-hopper",
        "int4",
        {"mem_fraction_static": 0.907, **FP8},
        expected="out of memory capturing graphs",
    )
