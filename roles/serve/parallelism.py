"""How a server is spread over GPUs: SGLang's parallel sizes. Pure."""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple, Self

from roles.preflight.hardware import Hardware
from roles.refusal import Refusal
from roles.serve.profile import Flag, Profile
from roles.weights.model import Architecture, Model, Quantization

FLAGS: Final = {
    "dp": "dp_size",
    "tp": "tp_size",
    "pp": "pp_size",
    "ep": "ep_size",
    "attn_dp": "attn_dp_size",
    "moe_dp": "moe_dp_size",
    "nnodes": "nnodes",
}

ALL_TO_ALL: Final = (
    *("ascend_fuseep", "deepep", "deepep_v2", "flashinfer", "flashinfer_megamoe"),
    *("megamoe", "mooncake", "mori", "nixl", "pplx"),
)
"""All-to-all backends under which SGLang 0.5.23 sets ep_size to tp_size, whatever was asked
(`_A2A_EP_SPANNING_BACKENDS` in arg_groups/overrides.py)."""

GROUPS: Final[dict[Quantization, int]] = {"none": 1, "fp8": 128, "int4-g32": 32, "nvfp4": 16}
"""Neighbouring weights that share a scale, and so cannot be split."""


class Parallelism(NamedTuple):
    """The parallel sizes of one server; each is 1 when its flag is absent."""

    dp: int = 1
    """Full replicas of the model (`dp_size`)."""
    tp: int = 1
    """Ranks that share every layer (`tp_size`)."""
    pp: int = 1
    """Stages that share out the layers (`pp_size`)."""
    ep: int = 1
    """Groups that share out the routed experts, inside tp (`ep_size`)."""
    attn_dp: int = 1
    """Groups with an attention and a KV cache of their own, inside tp (`attn_dp_size`)."""
    moe_dp: int = 1
    """Replicas of the routed experts, inside tp (`moe_dp_size`)."""
    nnodes: int = 1
    """Hosts (`nnodes`)."""

    @classmethod
    def of(cls, server: Mapping[str, Flag]) -> Self:
        """The sizes that SGLang makes of a profile's `server:` block.

        Raises Refusal for a size that is not a positive integer.
        """
        sizes = {size: _positive(flag, server.get(flag, 1)) for size, flag in FLAGS.items()}
        if server.get("enable_dp_attention") and sizes["attn_dp"] == 1:
            # The deprecated spelling: SGLang's handle_deprecated_dp_attention moves dp_size to attn_dp_size.
            sizes |= {"attn_dp": sizes["dp"], "dp": 1}
        if server.get("moe_a2a_backend") in ALL_TO_ALL:
            sizes["ep"] = sizes["tp"]
        return cls(**sizes)

    @property
    def gpus(self) -> int:
        """GPUs that the server uses: dp x tp x pp (SGLang's `launch_world_size_of`)."""
        return self.dp * self.tp * self.pp

    @property
    def attn_tp(self) -> int:
        """Ranks that share the attention heads of one layer; 0 where attn_dp exceeds tp."""
        return self.tp // self.attn_dp

    @property
    def moe_tp(self) -> int:
        """Ranks that share each expert (SGLang: tp // ep // moe_dp); 0 where the sizes do not nest."""
        return self.tp // self.ep // self.moe_dp

    def __str__(self) -> str:
        """As a user writes it: the flags whose size is not 1."""
        sizes = {flag: getattr(self, size) for size, flag in FLAGS.items()}
        return ", ".join(f"{flag} {size}" for flag, size in sizes.items() if size > 1) or "tp_size 1"


def _positive(flag: str, value: Flag) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Refusal(f"server.{flag}: must be an integer of at least 1, not {value!r}")
    return value


def check(
    profile: Profile, model: Model, hardware: Hardware, known: Mapping[str, Profile] | None = None
) -> list[str]:
    """Why SGLang could not run `profile` on `hardware` as it is spread; empty if it can.

    `known` are the site's profiles, of which the one that was probably meant is named. The rules are those of
    SGLang 0.5.23, most of which it checks only after minutes, by a bare assertion, or not at all.
    """
    try:
        parallelism = Parallelism.of(profile.server)
        return [
            *_placement(parallelism, profile, model, hardware, known or {}),
            *_fit(parallelism, profile, model, hardware),
        ]
    except Refusal as refusal:  # a size that is no positive integer
        return [str(refusal)]


def _fit(parallelism: Parallelism, profile: Profile, model: Model, hardware: Hardware) -> list[str]:
    """What is wrong with the sizes, wherever they are placed."""
    nesting = _nesting(parallelism, profile.server)
    if nesting:
        return nesting  # the other rules divide by these sizes
    return [
        *_experts(parallelism, profile.server, model),
        *_dimensions(parallelism, profile.server, model.architecture),
        *_stages(parallelism, profile, model.architecture),
        *([] if on_cpu(profile) else _backends(parallelism, profile.server, model, hardware)),
    ]


def on_cpu(profile: Profile) -> bool:
    """Whether the profile serves on the CPU, and so uses no GPU at all."""
    return profile.server.get("device") == "cpu"


def _placement(
    parallelism: Parallelism,
    profile: Profile,
    model: Model,
    hardware: Hardware,
    known: Mapping[str, Profile],
) -> list[str]:
    """Which GPUs the server gets, against those that it uses (`launch_world_size_of`, times dp)."""
    if parallelism.nnodes != 1:
        return [f"server.nnodes: Slipway serves from one host at a time; leave it out, not {parallelism.nnodes}"]
    if on_cpu(profile):
        return [] if profile.gpus == "all" else ["gpus: a profile with `device: cpu` uses none; leave it out"]
    if problem := _named_gpus(profile, hardware):
        return [problem]
    available = hardware.gpus if profile.gpus == "all" else len(profile.gpus)
    if parallelism.gpus == available:
        return []
    product = f"dp_size {parallelism.dp} x tp_size {parallelism.tp} x pp_size {parallelism.pp}"
    if parallelism.ep > 1:
        product += "; ep_size adds none, it nests in tp_size"
    advice = _meant(parallelism, available, profile, model, hardware, known)
    if parallelism.gpus < available:
        advice.append(f"`gpus: {list(range(parallelism.gpus))}` if the others are to stay idle")
    ending = f"; write {', or '.join(advice)}" if advice else ""
    return [f"server.tp_size: SGLang would use {parallelism.gpus} GPUs ({product}), not {available}{ending}"]


def _named_gpus(profile: Profile, hardware: Hardware) -> str | None:
    """What is wrong with the GPUs that the profile names."""
    if hardware.gpus == 0:
        return "gpus: the host has none, and only a profile with `device: cpu` needs none"
    if profile.gpus == "all":
        return None
    if not profile.gpus or len(set(profile.gpus)) != len(profile.gpus):
        return f"gpus: takes at least one GPU, and each once, not {list(profile.gpus)}"
    if outside := set(profile.gpus) - set(range(hardware.gpus)):
        return f"gpus: the host's GPUs are 0 to {hardware.gpus - 1}, so there is no GPU {min(outside)}"
    return None


def _meant(
    parallelism: Parallelism,
    gpus: int,
    profile: Profile,
    model: Model,
    hardware: Hardware,
    known: Mapping[str, Profile],
) -> list[str]:
    """Up to two ways to spread `profile` over `gpus` that come nearest to what it says, and that work."""
    dp, tp, pp, ep = parallelism.dp, parallelism.tp, parallelism.pp, parallelism.ep
    wider = parallelism._replace(tp=gpus // dp // pp)
    longer = parallelism._replace(pp=gpus // dp // tp, ep=min(ep, tp))
    working = [
        candidate
        for candidate in dict.fromkeys((wider, longer, wider._replace(ep=1)))
        if candidate.gpus == gpus and not _fit(candidate, profile, model, hardware)
    ]
    return [f"{candidate}{_name_of(candidate, profile, model, hardware, known)}" for candidate in working[:2]]


def _name_of(
    parallelism: Parallelism, profile: Profile, model: Model, hardware: Hardware, known: Mapping[str, Profile]
) -> str:
    """A known profile that spreads the same model over the same GPUs like this, and works; in brackets.

    Of several the first, for shipped ones come first; or the simplest of which its name is a variant.
    """
    names = [
        name
        for name, other in known.items()
        if (other.model, other.gpus) == (profile.model, profile.gpus)
        and not on_cpu(other)
        and _is_spread(other, parallelism)
        and not check(other, model, hardware)
    ]
    simplest = min((name for name in names if names[0].startswith(name)), key=len, default=None)
    return f" (profile {simplest})" if simplest else ""


def _is_spread(profile: Profile, parallelism: Parallelism) -> bool:
    try:
        return Parallelism.of(profile.server) == parallelism
    except Refusal:
        return False


def _nesting(parallelism: Parallelism, server: Mapping[str, Flag]) -> list[str]:
    """Whether the groups divide each other (handle_context_parallelism, handle_data_parallelism,
    check_server_args; SGLang does not check ep_size against tp_size before the ranks start)."""
    dp, tp, pp, ep = parallelism.dp, parallelism.tp, parallelism.pp, parallelism.ep
    attn_dp, moe_dp = parallelism.attn_dp, parallelism.moe_dp
    attn_cp = _positive("attn_cp_size", server.get("attn_cp_size", 1))
    problems = []
    if tp % (ep * moe_dp):
        problems.append(
            f"server.ep_size: {ep}{f' x moe_dp_size {moe_dp}' if moe_dp > 1 else ''} does not divide "
            f"tp_size {tp}, within which experts are shared out, so that SGLang stops with "
            f'"parallel topology is inconsistent"; write {_divisors(tp // math.gcd(tp, moe_dp))}'
        )
    if moe_dp > 1 and ep > 1 and ep * moe_dp != tp:
        problems.append(f"server.moe_dp_size: with ep_size above 1, ep_size x moe_dp_size must be tp_size {tp}")
    if moe_dp > 1 and pp > 1:
        problems.append("server.moe_dp_size: does not work with pp_size above 1; leave one of them out")
    if moe_dp not in (1, attn_cp):
        problems.append(f"server.moe_dp_size: must be 1 or equal to attn_cp_size, {attn_cp}, not {moe_dp}")
    if attn_dp > 1 and dp > 1:
        problems.append("server.attn_dp_size: does not work with dp_size above 1; leave one of them out")
    if tp % (attn_dp * attn_cp):
        problems.append(
            f"server.attn_dp_size: {attn_dp}{f' x attn_cp_size {attn_cp}' if attn_cp > 1 else ''} does not "
            f"divide tp_size {tp}, within which attention is shared out; write {_divisors(tp)}"
        )
    return problems


def _experts(parallelism: Parallelism, server: Mapping[str, Flag], model: Model) -> list[str]:
    """Whether the experts can be shared out (eplb/expert_location.py, models/deepseek_v2.py,
    handle_eplb_and_dispatch)."""
    architecture, tp, ep, moe_tp = model.architecture, parallelism.tp, parallelism.ep, parallelism.moe_tp
    if architecture.n_routed_experts is None or architecture.moe_intermediate_size is None:
        return [f"server.ep_size: the model {model.name} has no experts; leave it out"] if ep > 1 else []
    problems = []
    redundant = server.get("ep_num_redundant_experts", 0)
    slots = architecture.n_routed_experts + (redundant if isinstance(redundant, int) else 0)
    if slots % ep:
        problems.append(
            f"server.ep_size: {ep} does not divide the {slots} expert slots (n_routed_experts "
            f"{architecture.n_routed_experts} + ep_num_redundant_experts {redundant})"
        )
    if tp > architecture.n_routed_experts:
        problems.append(f"server.tp_size: {tp} is more than the model's {architecture.n_routed_experts} experts")
    group = GROUPS[model.quantization] if "experts" in model.quantized_parts else 1
    if architecture.moe_intermediate_size % (moe_tp * group):
        of = f" of whole groups of {group}" if group > 1 else ""
        problems.append(
            f"server.tp_size: each expert is split over {moe_tp} ranks (tp_size / ep_size), which does not cut "
            f"moe_intermediate_size {architecture.moe_intermediate_size} into equal parts{of}; "
            "write a larger ep_size"
        )
    if server.get("enable_eplb") and ep == 1:
        problems.append("server.enable_eplb: moves experts between ranks, so it needs an ep_size above 1")
    if server.get("ep_dispatch_algorithm") in ("static", "lp") and server.get("moe_a2a_backend", "none") == "none":
        problems.append(
            f"server.ep_dispatch_algorithm: {server['ep_dispatch_algorithm']} needs a moe_a2a_backend; write dynamic"
        )
    return problems


def _dimensions(parallelism: Parallelism, server: Mapping[str, Flag], architecture: Architecture) -> list[str]:
    """Whether every rank gets an equal part of heads and dense layers (models/deepseek_v2.py, models/qwen3.py,
    layers/attention/vision.py, check_server_args)."""
    tp = parallelism.tp
    attn_tp = parallelism.attn_tp // _positive("attn_cp_size", server.get("attn_cp_size", 1))
    split = f"attention is split over {attn_tp} ranks (tp_size / attn_dp_size)"
    problems = []
    if architecture.num_attention_heads % attn_tp:
        problems.append(
            f"server.tp_size: {split}, which does not divide num_attention_heads "
            f"{architecture.num_attention_heads}; write {_divisors(architecture.num_attention_heads)}"
        )
    kv_heads = architecture.num_key_value_heads
    if not architecture.is_latent and kv_heads and kv_heads % attn_tp and attn_tp % kv_heads:
        problems.append(
            f"server.tp_size: {split}, which neither divides num_key_value_heads {kv_heads} nor is a multiple of it"
        )
    vision = architecture.vision_config
    if vision and parallelism.attn_dp == 1 and vision.vt_num_attention_heads % attn_tp:
        problems.append(
            f"server.tp_size: {split}, which does not divide the vision tower's {vision.vt_num_attention_heads} heads"
        )
    dense_tp = server.get("moe_dense_tp_size", tp)
    if dense_tp not in (1, tp):
        problems.append(f"server.moe_dense_tp_size: must be 1 or tp_size {tp}, not {dense_tp}")
    has_dense = not all(map(architecture.has_experts, range(architecture.num_hidden_layers)))
    if has_dense and dense_tp == tp and architecture.intermediate_size % tp:
        problems.append(
            f"server.tp_size: {tp} does not divide intermediate_size {architecture.intermediate_size} "
            "of the dense layers"
        )
    return problems


def _stages(parallelism: Parallelism, profile: Profile, architecture: Architecture) -> list[str]:
    """Whether the model can run in pipeline stages (check_pipeline_parallel_compat)."""
    pp, layers = parallelism.pp, architecture.num_hidden_layers
    if pp == 1:
        return []
    problems = []
    if pp > layers:
        problems.append(f"server.pp_size: {pp} stages are more than the model's {layers} layers")
    algorithm = profile.server.get("speculative_algorithm")
    if algorithm is not None and not (
        algorithm in ("EAGLE", "NEXTN") and profile.environment.get("SGLANG_ENABLE_PP_SPEC") in ("1", "true")
    ):
        problems.append(
            f"server.speculative_algorithm: {algorithm} does not work with pp_size above 1 (only EAGLE does, "
            "with SGLANG_ENABLE_PP_SPEC: '1' in the environment)"
        )
    return problems


def _backends(parallelism: Parallelism, server: Mapping[str, Flag], model: Model, hardware: Hardware) -> list[str]:
    """What the kernels cannot do (arg_groups/moe_hook.py and overrides.py, layers/moe/ep_moe/layer.py)."""
    tp, ep = parallelism.tp, parallelism.ep
    problems = []
    runner = moe_runner(server, hardware)
    if runner in ("flashinfer_cutlass", "flashinfer_cutedsl") and ep not in (1, tp):
        problems.append(
            f"server.ep_size: the MoE runner {runner} (the one for NVFP4 on this GPU) takes ep_size 1 or "
            f"tp_size {tp}, not {ep}"
        )
    if model.quantization == "nvfp4" and runner == "auto" and hardware.compute_capability.startswith("12."):
        problems.append(
            "server.quantization: write modelopt_fp4; without it SGLang does not choose the MoE runner for NVFP4"
        )
    backend = server.get("moe_a2a_backend", "none")
    if backend in ALL_TO_ALL and server.get("ep_size", ep) != tp:
        problems.append(
            f"server.ep_size: the moe_a2a_backend {backend} makes it tp_size, whatever is asked; write {tp}"
        )
    if backend == "flashinfer" and parallelism.attn_dp != tp:
        problems.append(f"server.attn_dp_size: the moe_a2a_backend flashinfer needs it to be tp_size {tp}")
    if backend == "deepep" and hardware.link == "pcie":
        problems.append(
            "server.moe_a2a_backend: DeepEP needs NVLink (normal mode) or InfiniBand with GPU-initiated transfers "
            "(low latency), and this host's GPUs are linked by PCIe; leave it out"
        )
    if backend == "deepep" and model.quantization == "int4-g32" and runner != "humming":
        problems.append(
            "server.moe_a2a_backend: SGLang has no DeepEP kernel for INT4 experts and stops in the first MoE "
            "layer; leave it out"
        )
    if server.get("attn_cp_size", 1) != 1 and model.architecture.model_type.startswith("kimi"):
        problems.append(
            "server.attn_cp_size: context parallelism crashes with Kimi (sgl-project/sglang#22692); leave it out"
        )
    return problems


def moe_runner(server: Mapping[str, Flag], hardware: Hardware) -> str:
    """The MoE runner that SGLang takes (`_moe_runner_backend_quant_constraints` in arg_groups/overrides.py)."""
    asked = str(server.get("moe_runner_backend", "auto"))
    is_sm110_or_sm120 = hardware.compute_capability.split(".")[0] in ("11", "12")
    if asked == "auto" and server.get("quantization") == "modelopt_fp4" and is_sm110_or_sm120:
        return "flashinfer_cutlass"
    return asked


def _divisors(number: int) -> str:
    *most, last = (str(size) for size in range(1, number + 1) if number % size == 0)
    return f"{', '.join(most)} or {last}" if most else last
