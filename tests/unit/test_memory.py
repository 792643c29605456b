"""What a plan is told about memory: the buffers, the sizes that SGLang derives, and refusals of bad input."""

import pytest

from roles.preflight.hardware import Hardware
from roles.refusal import Refusal
from roles.serve.buffers import GIB, MIB
from roles.serve.memory import Estimate, Verdict, estimate
from roles.serve.profile import Flag, Profile
from roles.weights.model import Model
from tests.oracle.cases import HOST, documents, variant

MODELS, PROFILES = documents()
KIMI, GLM, QWEN, MOE = (MODELS[name] for name in ("kimi-k2.6", "glm-5-nvfp4", "qwen3-8b", "qwen3-30b-a3b"))
EAGLE3 = MODELS["kimi-k2.6-eagle3-mla"]


def of(model: Model, server: dict[str, Flag], draft: Model | None = None, **environment: str) -> Estimate:
    profile = Profile(name="p", description="", model=model.name, server=server, environment=environment)
    return estimate(model, profile, HOST, draft)


def buffer(estimated: Estimate, name: str) -> int:
    return sum(found.bytes for found in estimated.buffers if name in found.name)


TP8: dict[str, Flag] = {"tp_size": 8, "mem_fraction_static": 0.9}


@pytest.mark.parametrize("name", [name for name, p in PROFILES.items() if p.server.get("device") != "cpu"])
def test_every_shipped_profile_may_run_where_it_is_meant_to(name: str) -> None:
    profile = PROFILES[name]
    draft = MODELS[profile.draft] if profile.draft else None
    assert estimate(MODELS[profile.model], profile, HOST, draft).verdict is not Verdict.NO


def test_the_request_table_grows_with_requests_and_context() -> None:
    few = of(KIMI, {**TP8, "max_running_requests": 64})
    many = of(KIMI, {**TP8, "max_running_requests": 256})
    short = of(KIMI, {**TP8, "max_running_requests": 64, "context_length": "64k"})
    assert buffer(few, "table of requests") == 65 * (262144 + 4) * 4
    assert buffer(many, "table of requests") == 257 * (262144 + 4) * 4
    assert buffer(short, "table of requests") == 65 * (64000 + 4) * 4


def test_triton_decode_of_mla_takes_what_its_kernel_takes() -> None:
    # requests x heads per rank x 256 splits x (512 partial results and their weight) in fp32
    server: dict[str, Flag] = {**TP8, "attention_backend": "triton", "cuda_graph_max_bs_decode": 64}
    assert buffer(of(KIMI, server), "partial results") == 64 * 8 * 256 * 513 * 4
    assert buffer(of(KIMI, {**server, "context_length": 2048}), "partial results") == 64 * 8 * 64 * 513 * 4


def test_the_default_decode_batch_is_capped_by_the_requests() -> None:
    capped = of(QWEN, {**TP8, "max_running_requests": 32})
    assert buffer(capped, "logits") == 32 * 151936 * 4
    assert buffer(of(QWEN, TP8), "logits") == 512 * 151936 * 4


def test_attention_groups_share_out_requests_and_prefill() -> None:
    alone = of(KIMI, {**TP8, "max_running_requests": 64})
    groups = of(KIMI, {**TP8, "max_running_requests": 64, "attn_dp_size": 8})
    assert (alone.max_running_requests, groups.max_running_requests) == (64, 8)
    assert groups.stages[0].parts["attention"] > 4 * alone.stages[0].parts["attention"]


def test_pipelines_and_switches_have_no_prefill_graph() -> None:
    assert buffer(of(GLM, TP8), "prefill graphs") > 0
    assert buffer(of(GLM, {**TP8, "disable_prefill_cuda_graph": True}), "prefill graphs") == 0
    assert buffer(of(GLM, {"pp_size": 8, "mem_fraction_static": 0.9}), "prefill graphs") == 0


def test_the_kv_cache_ends_at_the_token_limit() -> None:
    limited = of(QWEN, {**TP8, "max_total_tokens": 10_000})
    assert limited.tokens == 10_000
    assert limited.requests_at_context == pytest.approx(10_000 / 40960)


def test_pages_are_whole() -> None:
    assert of(GLM, TP8).tokens % 64 == 0


@pytest.mark.parametrize(
    ("capability", "server", "row"),
    [
        ("9.0", {}, 656),
        ("10.0", {}, 576),
        ("12.0", {}, 656),
        ("12.0", {"dsa_decode_backend": "trtllm"}, 576),
        ("12.0", {"dsa_decode_backend": "tilelang"}, 656),
        ("12.0", {"dsa_decode_backend": "tilelang", "dsa_prefill_backend": "tilelang"}, 576),
    ],
)
def test_rows_of_sparse_attention_depend_on_its_kernels(capability: str, server: dict[str, Flag], row: int) -> None:
    hardware = HOST.model_copy(update={"compute_capability": capability})
    profile = Profile(name="p", description="", model="m", server={**TP8, "kv_cache_dtype": "fp8_e4m3", **server})
    assert estimate(GLM, profile, hardware).kv_bytes_per_token == 78 * (row + 132)


def test_the_cache_type_left_to_sglang_depends_on_gpu_and_checkpoint() -> None:
    hopper = HOST.model_copy(update={"compute_capability": "9.0"})
    profile = Profile(name="p", description="", model="m", server=TP8)
    assert estimate(GLM, profile, HOST).kv_bytes_per_token == 61_464
    assert estimate(GLM, profile, hopper).kv_bytes_per_token == 100_152
    assert estimate(KIMI, profile, HOST).kv_bytes_per_token == 70_272
    nvfp4 = variant(KIMI, "kimi", quantization="nvfp4", kv_cache_scheme="fp8_e4m3")
    assert estimate(nvfp4, profile, HOST).kv_bytes_per_token == 35_136


def test_speculation_takes_weights_cache_and_rows() -> None:
    plain = of(GLM, {**TP8, "cuda_graph_max_bs_decode": 32})
    server: dict[str, Flag] = {**TP8, "speculative_algorithm": "EAGLE", "speculative_num_draft_tokens": 4}
    mtp = of(GLM, {**server, "cuda_graph_max_bs_decode": 32})
    assert mtp.weights - plain.weights == mtp.stages[0].parts["draft"] > 2.5 * GIB
    assert mtp.kv_bytes_per_token - plain.kv_bytes_per_token == 656 + 132
    assert buffer(mtp, "logits") == 4 * buffer(plain, "logits")


def test_a_draft_model_is_read_from_disk_too() -> None:
    server: dict[str, Flag] = {**TP8, "speculative_algorithm": "EAGLE3"}
    drafted = of(KIMI, server, EAGLE3)
    assert drafted.load_bytes - of(KIMI, TP8).load_bytes == pytest.approx(6.2e9, rel=0.1)
    assert drafted.kv_bytes_per_token == of(KIMI, TP8).kv_bytes_per_token // 61 * 62


def test_a_dflash_draft_has_a_cache_of_its_own_kind() -> None:
    draft = variant(QWEN, "draft", num_hidden_layers=6, num_key_value_heads=8, target_layer_ids=(1, 12, 24))
    server: dict[str, Flag] = {**TP8, "speculative_algorithm": "DFLASH"}
    drafted = of(KIMI, server, draft)
    assert drafted.kv_bytes_per_token - of(KIMI, TP8).kv_bytes_per_token == 6 * 1 * 2 * 128 * 2


def test_a_uneven_pipeline_is_judged_by_its_heaviest_stage() -> None:
    even = of(KIMI, {"tp_size": 2, "pp_size": 4, "mem_fraction_static": 0.9})
    uneven = of(
        KIMI, {"tp_size": 2, "pp_size": 4, "mem_fraction_static": 0.9}, SGLANG_PP_LAYER_PARTITION="10,15,18,18"
    )
    assert [round(stage.total / GIB) for stage in uneven.stages] == [44, 70, 83, 85]
    assert uneven.weights > even.weights
    assert uneven.tokens < even.tokens


def test_a_measured_start_replaces_the_derived_one_and_narrows_the_band() -> None:
    profile = PROFILES["k26-tp8"]
    derived = estimate(KIMI, profile, HOST)
    measured = estimate(KIMI, profile, HOST, free_at_start=int(93.30 * GIB))
    assert derived.free_at_start / GIB == pytest.approx(93.30, abs=0.01)
    assert measured.tokens == pytest.approx(derived.tokens, rel=0.01)
    assert measured.band_kv < derived.band_kv


def test_too_high_a_fraction_says_to_lower_it() -> None:
    estimated = of(KIMI, {**TP8, "mem_fraction_static": 0.985})
    assert estimated.verdict is Verdict.NO
    assert estimated.change is not None
    assert (estimated.change.flag, estimated.change.direction) == ("mem_fraction_static", "lower")


def test_less_than_one_request_of_full_length_is_tight() -> None:
    server: dict[str, Flag] = {**TP8, "kv_cache_dtype": "fp8_e4m3", "max_running_requests": 64}
    estimated = of(KIMI, {**server, "mem_fraction_static": 0.82})
    assert 0 < estimated.requests_at_context < 1
    assert estimated.verdict is Verdict.TIGHT
    assert "less than one request of 262144 tokens" in estimated.breaks
    assert estimated.change is not None
    assert estimated.change.direction == "raise"


def test_a_context_too_long_for_any_fraction_is_tight() -> None:
    estimated = of(KIMI, {**TP8, "kv_cache_dtype": "bfloat16"})
    assert estimated.verdict is Verdict.TIGHT
    assert estimated.safe.is_empty
    assert estimated.change is not None
    assert (estimated.change.flag, estimated.change.direction) == ("context_length", "lower")


@pytest.mark.parametrize(
    ("model", "server", "sentence"),
    [
        (KIMI, {"mem_fraction_static": 1.5}, "server.mem_fraction_static: must be a number between 0 and 1, not 1.5"),
        (KIMI, {"mem_fraction_static": "most"}, "server.mem_fraction_static: must be a number between 0 and 1"),
        (KIMI, {"context_length": "long"}, "server.context_length: must be an integer, not 'long'"),
        (KIMI, {"kv_cache_dtype": "nvfp4"}, "server.kv_cache_dtype: cannot be estimated for nvfp4"),
        (KIMI, {"tp_size": 2, "ep_size": 4}, "must divide tp"),
        (KIMI, {"speculative_algorithm": "EAGLE"}, "draft: required, because model kimi-k2.6 has no MTP layer"),
        (KIMI, {"speculative_algorithm": "EAGLE3"}, "draft: required for server.speculative_algorithm EAGLE3"),
    ],
)
def test_what_cannot_be_estimated_is_refused(model: Model, server: dict[str, Flag], sentence: str) -> None:
    with pytest.raises(Refusal) as refused:
        of(model, server)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("partition", ["10,20", "15,15,15,15", "a,b,c,d", "-1,20,21,21"])
def test_a_partition_that_does_not_fit_is_refused(partition: str) -> None:
    with pytest.raises(Refusal, match=r"environment\.SGLANG_PP_LAYER_PARTITION: must be"):
        of(KIMI, {"tp_size": 2, "pp_size": 4}, SGLANG_PP_LAYER_PARTITION=partition)


def test_hardware_without_gpus_is_refused() -> None:
    with pytest.raises(Refusal, match=r"hardware\.gpus: must be at least 1"):
        estimate(QWEN, PROFILES["k26-tp8"], Hardware(gpus=0))


def test_hardware_without_a_memory_size_is_refused() -> None:
    with pytest.raises(Refusal, match=r"hardware\.memory_mib: required"):
        estimate(QWEN, PROFILES["k26-tp8"], Hardware(gpus=8))


def test_weights_that_fit_but_cannot_be_loaded_are_refused() -> None:
    # Two MoE layers of INT4 fit, and a third would while the second is repacked beside the original.
    model = variant(
        KIMI, "few", num_hidden_layers=3, first_k_dense_replace=1, vision_config=None, model_type="kimi_k2"
    )
    profile = Profile(name="p", description="", model="few", server={"mem_fraction_static": 0.95})
    (stage,) = estimate(model, profile, HOST).stages
    small = HOST.model_copy(update={"gpus": 1, "memory_mib": (stage.total + 4 * GIB) // MIB})
    estimated = estimate(model, profile, small)
    assert stage.load_peak > estimated.free_at_start > stage.total
    assert estimated.verdict is Verdict.NO
    assert "while they are loaded" in estimated.breaks
