"""The shipped profiles, inheritance, and which profiles suit a host."""

import pytest
from pydantic import ValidationError

from roles.preflight.hardware import Hardware
from roles.refusal import Refusal
from roles.serve.memory import Verdict, estimate
from roles.serve.parallelism import Parallelism, on_cpu
from roles.serve.profile import Flag, Profile, extended
from roles.serve.settings import ServeSettings
from roles.serve.suits import Suitability, suitability
from tests.unit.shipped import ROOT, changed, draft_of, model_of, profile, rtx_pro_6000_x8, site

NAMES = sorted(site().profiles)
CPU_HOST = Hardware(gpus=0)


def reasons(wanted: Profile, hardware: Hardware | None) -> list[str]:
    return list(suitability(wanted, model_of(wanted), hardware, draft_of(wanted), site().profiles).reasons)


@pytest.mark.parametrize("name", NAMES)
def test_every_shipped_profile_suits_exactly_the_host_that_it_is_for(name: str) -> None:
    wanted = profile(name)
    expected = (True, False) if on_cpu(wanted) else (False, True)
    assert (not reasons(wanted, CPU_HOST), not reasons(wanted, rtx_pro_6000_x8())) == expected


@pytest.mark.parametrize("name", [name for name in NAMES if not on_cpu(profile(name))])
def test_every_shipped_profile_uses_all_gpus_and_has_memory_to_spare(name: str) -> None:
    wanted = profile(name)
    assert Parallelism.of(wanted.server).gpus == 8
    assert estimate(model_of(wanted), wanted, rtx_pro_6000_x8(), draft_of(wanted)).verdict is Verdict.OK


@pytest.mark.parametrize("name", NAMES)
def test_every_shipped_profile_is_documented_and_measured(name: str) -> None:
    wanted = profile(name)
    assert wanted.description.endswith(".")
    assert wanted.description.count(". ") == 0, "one sentence"
    assert "mem_fraction_static" in wanted.server
    assert "benchmark" in wanted.model_fields_set
    assert all(entry.source for entry in wanted.reference)
    assert all(entry.source for entry in wanted.findings)


def test_every_shipped_profile_is_in_the_documents() -> None:
    page = (ROOT / "docs/profiles.md").read_text()
    assert [name for name in NAMES if f"`{name}`" not in page] == []


def test_a_variant_differs_from_its_parent_in_what_it_names_only() -> None:
    base, variant = profile("k26-ep8").server, profile("k26-ep8-requests-256").server
    assert {flag for flag in base | variant if base.get(flag) != variant.get(flag)} == {"max_running_requests"}


def test_the_tuned_profile_is_both_knobs_together() -> None:
    knobs = profile("k26-ep8-requests-256").server | profile("k26-ep8-decode-steps-8").server
    assert profile("k26-ep8-tuned").server == knobs | {"max_running_requests": 256}


def test_no_reference_lies_in_the_floors() -> None:
    """A floor catches a broken host; one above a reference would fail a sound one."""
    for name in NAMES:
        wanted = profile(name)
        for floor in wanted.benchmark.floors:
            for reference in wanted.reference:
                if reference.concurrency == floor.concurrency:
                    assert floor.tokens_per_second is not None
                    assert floor.tokens_per_second < reference.output_tokens_per_second


def test_blocks_are_merged_key_by_key_and_null_takes_away() -> None:
    parent = {"server": {"tp_size": 8, "ep_size": 8}, "environment": {"A": "1"}, "gpus": [0, 1]}
    child = {"server": {"ep_size": None, "pp_size": 2}, "gpus": None}
    assert extended(child, parent) == {"server": {"tp_size": 8, "pp_size": 2}, "environment": {"A": "1"}}


def test_lists_replace_what_they_inherit() -> None:
    parent = {"benchmark": {"concurrencies": [1, 32], "repeats": 3}}
    child = {"benchmark": {"concurrencies": [64]}}
    assert extended(child, parent) == {"benchmark": {"concurrencies": [64], "repeats": 3}}


def test_what_a_profile_says_of_itself_is_not_inherited() -> None:
    parent = {"description": "The parent.", "reference": [1], "findings": [2], "model": "m"}
    assert extended({"description": "The child."}, parent) == {"description": "The child.", "model": "m"}


def test_a_variant_without_a_description_is_refused() -> None:
    values = extended({"name": "variant"}, {"description": "The parent.", "model": "m"})
    with pytest.raises(Refusal, match=r"^x\.yml: description: required, but not given$"):
        Profile.read(values, "x.yml")


@pytest.mark.parametrize(
    ("variable", "why"),
    [
        ("CUDA_VISIBLE_DEVICES", "use `gpus`"),
        ("CUDA_HOME", "it is the toolkit of the release"),
        ("HOME", "it is the cache of the release"),
        ("PATH", "it follows from the release and its toolkit"),
        ("SLIPWAY_FINGERPRINT", "Slipway knows by it what runs"),
    ],
)
def test_what_slipway_sets_in_the_environment_is_not_a_users_to_set(variable: str, why: str) -> None:
    environment = {"NCCL_P2P_LEVEL": "SYS", variable: "0"}
    with pytest.raises(Refusal) as refusal:
        Profile.read({"name": "p", "description": "", "model": "m", "environment": environment}, "p.yml")
    assert str(refusal.value) == f"p.yml: environment: {variable} is not set here; {why}"
    with pytest.raises(ValidationError, match=f"{variable} is not set here"):
        ServeSettings.model_validate({"environment": environment})


def test_a_draft_model_that_would_not_be_used_is_refused() -> None:
    values: dict[str, object] = {"name": "p", "description": "", "model": "m", "draft": "d"}
    with pytest.raises(Refusal) as refusal:
        Profile.read(values, "p.yml")
    assert str(refusal.value) == (
        "p.yml: draft: d would not be used; write `server: {speculative_algorithm: …}`, or leave it out"
    )
    assert Profile.read({**values, "server": {"speculative_algorithm": "EAGLE3"}}, "p.yml").draft == "d"


def test_a_host_of_which_nothing_is_known_suits_profiles_for_the_cpu_only() -> None:
    assert reasons(profile("tiny-tp1"), None) == []
    assert reasons(profile("k26-tp8"), None) == [
        "the host's GPUs are not known before a driver answers: declare the variable `hardware`"
    ]


def test_devices_must_match() -> None:
    assert reasons(profile("tiny-tp1"), rtx_pro_6000_x8()) == ["it serves on the CPU, and the host has GPUs"]
    assert reasons(profile("k26-tp8"), CPU_HOST) == ["it needs GPUs, and the host has none"]


def test_kernels_need_a_recent_gpu() -> None:
    old = rtx_pro_6000_x8().model_copy(update={"compute_capability": "7.5"})
    assert "int4-g32 weights need compute capability 8.0, not 7.5" in reasons(profile("k26-tp8"), old)
    assert "sparse attention needs compute capability 9.0, not 7.5" in reasons(profile("glm-5-nvfp4-tp8"), old)


def test_too_little_memory_is_a_reason() -> None:
    assert reasons(changed("k26-tp8", mem_fraction_static=0.7), rtx_pro_6000_x8()) == [
        "out of memory: the weights leave no room for the KV cache; raise mem_fraction_static"
    ]


def test_memory_that_may_not_suffice_is_no_reason_but_is_said() -> None:
    def judged(fraction: float) -> Suitability:
        wanted = changed("k26-tp8", mem_fraction_static=fraction)
        return suitability(wanted, model_of(wanted), rtx_pro_6000_x8())

    assert judged(0.905) == Suitability()
    assert judged(0.96).reasons == ()
    sentence = judged(0.96).tight or ""
    assert sentence.startswith("its memory is tight: ")
    assert sentence.endswith("lower mem_fraction_static, or set serve_accept_tight: true to try")


def test_a_partition_of_other_layers_is_a_reason() -> None:
    wanted = profile("k26-pp8").model_copy(update={"environment": {"SGLANG_PP_LAYER_PARTITION": "8,8,8,8,8,8,8,8"}})
    assert reasons(wanted, rtx_pro_6000_x8()) == [
        "environment.SGLANG_PP_LAYER_PARTITION: must be 8 numbers, one for each pipeline stage, with the sum 61, "
        "not '8,8,8,8,8,8,8,8'"
    ]


# The ways to serve Kimi K2.6 that were tried or proposed and cannot work; the repository does not ship them.
CANNOT_WORK: dict[str, dict[str, Flag | None]] = {
    "TP4 EP2: out of memory 15 s after the start, on four GPUs": {"tp_size": 4, "ep_size": 2},
    "TP2 EP4: failed": {"tp_size": 2, "ep_size": 4},
    "EP8 with DeepEP: proposed": {"ep_size": 8, "moe_a2a_backend": "deepep"},
}


@pytest.mark.parametrize("story", CANNOT_WORK)
def test_what_cannot_work_is_refused_before_it_is_loaded(story: str) -> None:
    assert reasons(changed("k26-tp8", **CANNOT_WORK[story]), rtx_pro_6000_x8())


def test_tp4_ep2_on_its_four_gpus_is_refused_for_its_memory() -> None:
    half = changed("k26-tp8", tp_size=4, ep_size=2).model_copy(update={"gpus": (0, 1, 2, 3)})
    [reason] = reasons(half, rtx_pro_6000_x8())
    assert reason.startswith("out of memory: ")
