"""The most that a profile could reach."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roles.preflight.hardware import Hardware
from roles.serve.ceiling import Load, decode_ceiling
from roles.serve.profile import Flag, Profile
from roles.weights.model import Model
from tests.unit.shipped import changed, model_of, profile, rtx_pro_6000_x8, site

GPU = Hardware(gpus=1, memory_mib=40960, compute_capability="8.0", memory_bandwidth_gb_s=1000)

# Dense, every size a power of two: 2 layers x (q, k, v, o: 4 x 1024^2; MLP: 3 x 1024 x 4096) + head 32768 x 1024,
# in bf16, and norms.
DENSE = (
    site()
    .models["qwen3-8b"]
    .model_copy(
        update={
            "architecture": site()
            .models["qwen3-8b"]
            .architecture.model_copy(
                update={
                    "hidden_size": 1024,
                    "num_hidden_layers": 2,
                    "num_attention_heads": 8,
                    "num_key_value_heads": 8,
                    "head_dim": 128,
                    "intermediate_size": 4096,
                    "vocab_size": 32768,
                }
            )
        }
    )
)
WEIGHTS = 2 * (2 * (4 * 1024**2 + 3 * 1024 * 4096) + 32768 * 1024)
NORMS = 2 * (2 * (2 * 1024 + 2 * 128) + 1024)
KV_PER_TOKEN = 2 * 2 * 8 * 128 * 2  # layers x (key, value) x heads x width x bf16


def dense(**server: Flag) -> Profile:
    return Profile(name="dense", description="", model="dense", server={"max_running_requests": 4096, **server})


def ceiling(
    wanted: Profile, hardware: Hardware, requests: float, context: float, model: Model | None = None
) -> float:
    found = decode_ceiling(wanted, model or model_of(wanted), hardware, Load(requests, context))
    assert found is not None
    return found


def test_one_request_reads_all_weights_and_its_kv_cache_once_a_token() -> None:
    by_hand = 1e12 / (WEIGHTS + NORMS + 1000 * KV_PER_TOKEN)
    assert ceiling(dense(), GPU, 1, 1000, DENSE) == pytest.approx(by_hand, rel=1e-9)


def test_requests_share_the_weights_but_not_the_kv_cache() -> None:
    by_hand = 64 * 1e12 / (WEIGHTS + NORMS + 64 * 1000 * KV_PER_TOKEN)
    assert ceiling(dense(), GPU, 64, 1000, DENSE) == pytest.approx(by_hand, rel=1e-9)


def test_an_all_reduce_moves_its_volume_over_the_link() -> None:
    hardware = GPU.model_copy(update={"gpus": 2, "link_bandwidth_gb_s": 1.0})
    read = (WEIGHTS / 2 + NORMS + 1000 * KV_PER_TOKEN / 2) / 1e12
    # 2 for each of 2 layers, each 2 (n - 1) / n x hidden size x bf16.
    exchanged = 4 * 1 * 1024 * 2 / 1e9
    by_hand = 1 / (read + exchanged)
    assert ceiling(dense(tp_size=2), hardware, 1, 1000, DENSE) == pytest.approx(by_hand, rel=1e-9)


def test_an_all_reduce_takes_at_least_as_long_as_a_small_one() -> None:
    hardware = GPU.model_copy(update={"gpus": 2, "all_reduce_us": 5000.0})
    assert ceiling(dense(tp_size=2), hardware, 1, 0, DENSE) == pytest.approx(50, rel=0.01)  # 4 x 5 ms a token


def test_one_request_gains_nothing_from_pipeline_stages() -> None:
    staged = ceiling(dense(pp_size=2), GPU, 1, 1000, DENSE)
    assert staged == pytest.approx(ceiling(dense(), GPU, 1, 1000, DENSE), rel=0.01)


def test_many_requests_keep_all_pipeline_stages_busy() -> None:
    staged = ceiling(dense(pp_size=2), GPU, 2, 1000, DENSE)
    assert staged == pytest.approx(2 * ceiling(dense(), GPU, 1, 1000, DENSE), rel=0.01)


def test_replicas_add_up() -> None:
    replicas = ceiling(dense(dp_size=2), GPU, 2, 1000, DENSE)
    assert replicas == pytest.approx(2 * ceiling(dense(), GPU, 1, 1000, DENSE))


def test_requests_beyond_max_running_requests_wait() -> None:
    assert ceiling(dense(max_running_requests=8), GPU, 64, 1000, DENSE) == ceiling(dense(), GPU, 8, 1000, DENSE)


def test_speculative_decoding_yields_every_drafted_token_at_most() -> None:
    hardware = rtx_pro_6000_x8()
    plain, drafted = profile("glm-5-nvfp4-tp8"), profile("glm-5-nvfp4-tp8-mtp")
    gain = ceiling(drafted, hardware, 1, 1024) / ceiling(plain, hardware, 1, 1024)
    assert 2 < gain < 4  # four tokens a step, which use more experts than one


def test_sparse_attention_reads_little_of_a_long_context() -> None:
    hardware = rtx_pro_6000_x8()
    glm, kimi = profile("glm-5-nvfp4-tp8"), profile("k26-tp8")
    slower = [ceiling(p, hardware, 64, 2048) / ceiling(p, hardware, 64, 131072) for p in (glm, kimi)]
    assert slower[0] < slower[1]


def test_kimi_reads_its_active_weights_by_hand() -> None:
    """Every tensor of the model once, eight of 384 experts in each of 60 layers, and no second copy of kv_b."""
    attention = 7168 * (1536 + 512 + 64) + 1536 * 64 * 192 + 512 * 64 * 256 + 64 * 128 * 7168
    expert = 3 * 7168 * 2048
    bf16 = 61 * attention + 3 * 7168 * 18432 + 60 * (expert + 384 * 7168) + 163840 * 7168
    by_hand = 2 * bf16 + 60 * 8 * expert * (0.5 + 2 / 32)
    hardware = rtx_pro_6000_x8()
    found = hardware.memory_bandwidth_gb_s * 1e9 / ceiling(changed("k26-tp8", tp_size=1), hardware, 1, 0)
    assert found == pytest.approx(by_hand, rel=1e-3)  # but for norms


def test_the_busiest_group_of_experts_reads_at_least_one_whole() -> None:
    """Of sixteen groups eight have one of a token's eight experts; ranks that split experts read half each."""
    idle = rtx_pro_6000_x8().model_copy(update={"link_bandwidth_gb_s": 0, "all_reduce_us": 0})
    groups, ranks = (1 / ceiling(changed("k26-tp8", tp_size=16, ep_size=ep), idle, 1, 0) for ep in (16, 1))
    expert = 60 * 3 * 7168 * 2048 * (0.5 + 2 / 32) / (idle.memory_bandwidth_gb_s * 1e9)
    assert groups - ranks == pytest.approx(expert / 2, rel=1e-6)


def test_attention_groups_read_the_cache_of_their_own_requests() -> None:
    hardware = rtx_pro_6000_x8()
    together, apart = (ceiling(changed("k26-tp8", attn_dp_size=n), hardware, 64, 200_000) for n in (1, 8))
    assert apart > 2 * together  # MLA's cache is whole on every rank of a group


def test_nothing_is_said_where_nothing_is_known() -> None:
    unknown = rtx_pro_6000_x8().model_copy(update={"memory_bandwidth_gb_s": 0})
    kimi, tiny = profile("k26-tp8"), profile("tiny-tp1")
    assert decode_ceiling(kimi, model_of(kimi), unknown, Load(1, 1024)) is None
    assert decode_ceiling(tiny, model_of(tiny), rtx_pro_6000_x8(), Load(1, 1024)) is None


MEASURED = [
    *((name, r.concurrency, r.output_tokens_per_second) for name in site().profiles for r in profile(name).reference),
    # Kimi K2.6 on the same hardware by another engine: with a draft at C=1, and at C=128.
    ("k26-ep8-eagle3", 1, 122.0),
    ("k26-tp8", 128, 2245.8),
    # GLM-5.1, which has the same dimensions.
    ("glm-5-nvfp4-tp8", 512, 1490),
]


@pytest.mark.parametrize(("name", "requests", "measured"), MEASURED)
def test_no_measured_result_is_above_its_ceiling(name: str, requests: int, measured: float) -> None:
    """Neither context nor limits of the measurements are known: no context, and no limit of requests."""
    lifted = changed(name, max_running_requests=4096)
    assert measured < ceiling(lifted, rtx_pro_6000_x8(), requests, 0)


@settings(max_examples=30)
@given(
    name=st.sampled_from(["k26-tp8", "k26-ep8", "k26-pp8", "glm-5-nvfp4-tp8"]),
    requests=st.integers(1, 2000),
    context=st.integers(0, 100_000),
)
def test_more_bandwidth_is_never_slower_and_more_context_never_faster(name: str, requests: int, context: int) -> None:
    wanted, hardware = profile(name), rtx_pro_6000_x8()
    faster = hardware.model_copy(update={"memory_bandwidth_gb_s": 8000, "link_bandwidth_gb_s": 900})
    here = ceiling(wanted, hardware, requests, context)
    assert ceiling(wanted, faster, requests, context) > here
    assert ceiling(wanted, hardware, requests, context + 1000) <= here
    assert ceiling(wanted, hardware, requests + 1, context) >= here * 0.999
