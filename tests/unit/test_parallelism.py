"""The rules by which SGLang spreads a model over GPUs."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.preflight.hardware import Hardware
from roles.refusal import Refusal
from roles.serve.parallelism import Parallelism, check
from roles.serve.profile import Flag, Profile
from tests.unit.shipped import changed, model_of, rtx_pro_6000_x8, site

Flags = dict[str, Flag | None]


def problems(name: str, **server: Flag | None) -> list[str]:
    profile = changed(name, **server)
    return check(profile, model_of(profile), rtx_pro_6000_x8(), site().profiles)


def test_sizes_that_are_not_given_are_one() -> None:
    assert Parallelism.of({}) == Parallelism(dp=1, tp=1, pp=1, ep=1, attn_dp=1, moe_dp=1, nnodes=1)


def test_gpus_are_dp_x_tp_x_pp_and_ep_adds_none() -> None:
    assert Parallelism.of({"dp_size": 2, "tp_size": 4, "pp_size": 3, "ep_size": 4}).gpus == 24


def test_deprecated_attention_dp_means_what_sglang_makes_of_it() -> None:
    assert Parallelism.of({"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}) == Parallelism(tp=8, attn_dp=8)


def test_all_to_all_backends_make_ep_the_whole_group() -> None:
    assert Parallelism.of({"tp_size": 8, "moe_a2a_backend": "mooncake"}).ep == 8


@pytest.mark.parametrize("size", [0, -1, "8", True, 2.0])
def test_size_that_is_no_positive_integer_is_refused(size: Flag) -> None:
    with pytest.raises(Refusal, match=r"^server\.tp_size: must be an integer of at least 1, not "):
        Parallelism.of({"tp_size": size})


def test_tp4_ep2_is_answered_with_what_sglang_does_and_what_was_meant() -> None:
    assert problems("k26-tp8", tp_size=4, ep_size=2) == [
        "server.tp_size: SGLang would use 4 GPUs (dp_size 1 x tp_size 4 x pp_size 1; ep_size adds none, it nests in "
        "tp_size), not 8; write tp_size 8, ep_size 2 (profile k26-tp8-ep2), or tp_size 4, pp_size 2, ep_size 2, or "
        "`gpus: [0, 1, 2, 3]` if the others are to stay idle"
    ]


def test_tp2_ep4_is_answered_with_what_sglang_does_and_what_was_meant() -> None:
    assert problems("k26-tp8", tp_size=2, ep_size=4) == [
        "server.tp_size: SGLang would use 2 GPUs (dp_size 1 x tp_size 2 x pp_size 1; ep_size adds none, it nests in "
        "tp_size), not 8; write tp_size 8, ep_size 4 (profile k26-tp8-ep4), or tp_size 2, pp_size 4, ep_size 2, or "
        "`gpus: [0, 1]` if the others are to stay idle",
        "server.ep_size: 4 does not divide tp_size 2, within which experts are shared out, so that SGLang stops with "
        '"parallel topology is inconsistent"; write 1 or 2',
    ]


def test_ep8_with_deepep_is_refused_for_the_link_and_for_the_kernels() -> None:
    assert problems("k26-ep8", moe_a2a_backend="deepep") == [
        "server.moe_a2a_backend: DeepEP needs NVLink (normal mode) or InfiniBand with GPU-initiated transfers (low "
        "latency), and this host's GPUs are linked by PCIe; leave it out",
        "server.moe_a2a_backend: SGLang has no DeepEP kernel for INT4 experts and stops in the first MoE layer; "
        "leave it out",
    ]


RULES: list[tuple[str, Flags, str]] = [
    (
        "k26-tp8",
        {"tp_size": 16},
        r"^server\.tp_size: SGLang would use 16 GPUs .*, not 8; write tp_size 8 \(profile k26",
    ),
    ("k26-tp8", {"nnodes": 2}, r"^server\.nnodes: Slipway serves from one host at a time"),
    (
        "k26-tp8",
        {"tp_size": 2, "dp_size": 4, "attn_dp_size": 2},
        r"^server\.attn_dp_size: does not work with dp_size",
    ),
    ("k26-tp8", {"attn_dp_size": 3}, r"^server\.attn_dp_size: 3 does not divide tp_size 8.*; write 1, 2, 4 or 8$"),
    ("k26-tp8", {"moe_dp_size": 2}, r"^server\.moe_dp_size: must be 1 or equal to attn_cp_size, 1, not 2$"),
    ("k26-ep8", {"ep_size": 2, "moe_dp_size": 2}, r"ep_size x moe_dp_size must be tp_size 8$"),
    ("k26-tp8", {"tp_size": 4, "pp_size": 2, "moe_dp_size": 2}, r"^server\.moe_dp_size: does not work with pp_size"),
    ("k26-ep8", {"ep_num_redundant_experts": 4}, r"^server\.ep_size: 8 does not divide the 388 expert slots"),
    ("k26-tp8", {"enable_eplb": True}, r"^server\.enable_eplb: .* needs an ep_size above 1$"),
    ("k26-ep8", {"ep_dispatch_algorithm": "lp"}, r"^server\.ep_dispatch_algorithm: lp needs .*; write dynamic$"),
    ("k26-tp8", {"moe_dense_tp_size": 4}, r"^server\.moe_dense_tp_size: must be 1 or tp_size 8, not 4$"),
    ("k26-pp8", {"speculative_algorithm": "EAGLE3"}, r"^server\.speculative_algorithm: EAGLE3 does not work with pp"),
    ("k26-pp8", {"tp_size": 384, "ep_size": 2}, r"^server\.tp_size: each expert is split over 192 ranks"),
    ("k26-tp8", {"tp_size": 512, "ep_size": 64}, r"^server\.tp_size: 512 is more than the model's 384 experts$"),
    ("k26-tp8", {"tp_size": 7}, r"^server\.tp_size: 7 does not divide intermediate_size 18432 of the dense layers$"),
    ("k26-pp8", {"pp_size": 62}, r"^server\.pp_size: 62 stages are more than the model's 61 layers$"),
    ("k26-tp8", {"attn_cp_size": 2}, r"^server\.attn_cp_size: context parallelism crashes with Kimi"),
    (
        "k26-tp8",
        {"ep_size": 2, "moe_a2a_backend": "mooncake"},
        r"^server\.ep_size: the moe_a2a_backend mooncake makes it",
    ),
    ("k26-ep8", {"moe_a2a_backend": "flashinfer"}, r"^server\.attn_dp_size: the moe_a2a_backend flashinfer needs it"),
    ("glm-5-nvfp4-tp8", {"ep_size": 4}, r"^server\.ep_size: the MoE runner flashinfer_cutlass .* takes ep_size 1 or"),
    ("glm-5-nvfp4-tp8", {"quantization": None}, r"^server\.quantization: write modelopt_fp4"),
    ("glm-5-nvfp4-tp8", {"tp_size": 4, "ep_size": 2}, r"write tp_size 8 \(profile glm-5-nvfp4-tp8\), or `gpus"),
]


@pytest.mark.parametrize(("name", "server", "sentence"), RULES)
def test_broken_rule_is_explained(name: str, server: Flags, sentence: str) -> None:
    assert any(re.search(sentence, problem) for problem in problems(name, **server))


def test_dimensions_of_the_model_must_divide() -> None:
    found = "\n".join(problems("k26-tp8", tp_size=6))
    assert "num_attention_heads 64; write 1, 2, 4, 8, 16, 32 or 64" in found
    assert "moe_intermediate_size 2048 into equal parts of whole groups of 32" in found
    assert "the vision tower's 16 heads" in found


def test_kv_heads_are_divided_or_repeated_but_not_both() -> None:
    small = site().models["qwen3-8b"]  # 32 heads, 8 KV heads
    hardware = rtx_pro_6000_x8()

    def sizes(tp: int) -> list[str]:
        profile = changed("tiny-tp1", tp_size=tp)
        return check(profile, small, hardware)

    assert sizes(4) == sizes(16) == []
    odd = small.model_copy(update={"architecture": small.architecture.model_copy(update={"num_key_value_heads": 6})})
    assert check(changed("tiny-tp1", tp_size=4), odd, hardware) == [
        "server.tp_size: attention is split over 4 ranks (tp_size / attn_dp_size), which neither divides "
        "num_key_value_heads 6 nor is a multiple of it"
    ]


@pytest.mark.parametrize(
    ("gpus", "sentence"),
    [
        ((0, 1, 2, 3, 4, 5, 6, 6), "gpus: takes at least one GPU, and each once, not [0, 1, 2, 3, 4, 5, 6, 6]"),
        ((), "gpus: takes at least one GPU, and each once, not []"),
        ((1, 2, 3, 4, 5, 6, 7, 8), "gpus: the host's GPUs are 0 to 7, so there is no GPU 8"),
    ],
)
def test_gpus_must_be_the_hosts(gpus: tuple[int, ...], sentence: str) -> None:
    profile = changed("k26-tp8").model_copy(update={"gpus": gpus})
    assert check(profile, model_of(profile), rtx_pro_6000_x8()) == [sentence]


def test_a_host_without_gpus_runs_only_what_needs_none() -> None:
    nothing = Hardware(gpus=0)
    gpu, cpu = changed("k26-tp8"), changed("tiny-tp1")
    assert check(gpu, model_of(gpu), nothing) == [
        "gpus: the host has none, and only a profile with `device: cpu` needs none"
    ]
    assert check(cpu, model_of(cpu), nothing) == []


def test_gpus_that_are_named_are_those_that_count() -> None:
    half = changed("k26-tp8", tp_size=4).model_copy(update={"gpus": (4, 5, 6, 7)})
    assert check(half, model_of(half), rtx_pro_6000_x8()) == []


def test_a_profile_for_the_cpu_names_no_gpus() -> None:
    profile = changed("tiny-tp2").model_copy(update={"gpus": (0,)})
    assert check(profile, model_of(profile), rtx_pro_6000_x8()) == [
        "gpus: a profile with `device: cpu` uses none; leave it out"
    ]


def test_only_a_profile_that_works_itself_on_the_same_gpus_is_suggested() -> None:
    wanted = changed("k26-tp8", tp_size=4)
    meant = changed("k26-tp8").model_copy(update={"name": "meant"})

    def suggested(**known: Profile) -> bool:
        return "(profile" in "".join(check(wanted, model_of(wanted), rtx_pro_6000_x8(), known))

    assert suggested(meant=meant)
    for flags in ({"dp_size": 0}, {"tp_size": 8, "moe_dense_tp_size": 3}):
        assert not suggested(broken=meant.model_copy(update={"server": flags}))
    assert not suggested(elsewhere=meant.model_copy(update={"gpus": tuple(range(8))}))


def test_the_simplest_shipped_profile_is_suggested_before_a_sites_own() -> None:
    wanted = changed("k26-ep8", tp_size=4)
    known = {**site().profiles, "own": changed("k26-ep8").model_copy(update={"name": "own"})}
    (size, *_) = check(wanted, model_of(wanted), rtx_pro_6000_x8(), known)
    assert "write tp_size 8, ep_size 8 (profile k26-ep8), or " in size


def test_every_size_must_be_a_positive_integer() -> None:
    assert problems("k26-tp8", attn_cp_size=0) == ["server.attn_cp_size: must be an integer of at least 1, not 0"]


sizes = st.integers(1, 16)


@given(dp=sizes, tp=sizes, pp=sizes, ep=sizes, attn_dp=sizes, moe_dp=sizes)
def test_what_is_accepted_satisfies_sglangs_own_equations(
    dp: int, tp: int, pp: int, ep: int, attn_dp: int, moe_dp: int
) -> None:
    server: Flags = {"dp_size": dp, "tp_size": tp, "pp_size": pp, "ep_size": ep}
    server |= {"attn_dp_size": attn_dp, "moe_dp_size": moe_dp}
    if not problems("k26-tp8", **server):
        parallelism = Parallelism.of({key: value for key, value in server.items() if value is not None})
        assert parallelism.gpus == 8
        # "parallel topology is inconsistent" (runtime_context.py) otherwise.
        assert tp == ep * moe_dp * parallelism.moe_tp
        assert tp == attn_dp * parallelism.attn_tp


@given(tp=st.sampled_from([1, 2, 4, 8]), pp=st.sampled_from([1, 2, 4, 8]), ep=st.sampled_from([1, 2, 4, 8]))
def test_every_suggestion_works(tp: int, pp: int, ep: int) -> None:
    for problem in problems("k26-tp8", tp_size=tp, pp_size=pp, ep_size=ep):
        if "; write tp_size" not in problem and "; write pp_size" not in problem:
            continue
        advice = problem.split("; write ")[1].split(", or ")
        for suggestion in (text.partition(" (profile")[0] for text in advice if not text.startswith("`gpus")):
            flags = dict(size.split() for size in suggestion.split(", "))
            suggested: Flags = {"tp_size": 1, **{flag: int(size) for flag, size in flags.items()}}
            assert problems("k26-tp8", **suggested) == []
