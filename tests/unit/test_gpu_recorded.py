"""What one H200 wrote and ran, recorded by the harness for real GPUs (SGLang 0.5.17, driver 580.159, CUDA 13.0)."""

from pathlib import Path

from roles.flash_attn.builder import JOB_GIB, workers
from roles.observation import observed
from roles.preflight.checks import Expectation, compare
from roles.preflight.hardware import Hardware
from roles.preflight.host_facts import HostFacts, Link
from roles.preflight.parse import host_facts
from roles.serve.failure import explain

RECORDED = Path(__file__).parent / "data" / "gpu"
H200 = Hardware(gpus=1, gpu="NVIDIA H200", memory_mib=143771, compute_capability="9.0")


def host() -> HostFacts:
    return host_facts(observed((RECORDED / "h200_x1.txt").read_text().splitlines()))


def test_a_virtual_machine_with_one_gpu_is_read_and_has_no_findings() -> None:
    facts = host()
    gpu, slot = facts.gpus[0], facts.slots[0]

    assert (gpu.name, gpu.memory_mib, gpu.compute_capability) == ("NVIDIA H200", 143771, "9.0")
    assert (gpu.driver, facts.driver.loaded, facts.driver.library) == ("580.159.04",) * 3
    assert (gpu.best_link, slot.bar_mib, slot.numa_node) == (Link(5, 16), 262144, -1)
    assert facts.p2p == {"GPU0": {"GPU0": "X"}}
    assert not facts.nvlink
    assert compare(facts, Expectation(H200, "580.65.06")) == ()


def test_a_kernel_for_another_architecture_is_recognised() -> None:
    # A kernel compiled for sm_80 alone, started on sm_90.
    explanation = explain((RECORDED / "no_kernel_image.txt").read_text(), exit_status=1)

    assert explanation.kind == "no kernel image"
    assert "no kernel image is available for execution on the device (209)" in explanation.evidence


def test_compile_jobs_have_the_memory_that_they_were_seen_to_need() -> None:
    # GiB of the largest process of one nvcc, flash-attn 2.8.3.post2 for sm_90
    seen = {"bwd 256": 6.56, "bwd 256 causal": 6.45, "bwd 128": 6.02, "fwd 128": 4.12, "fwd split 256": 3.63}
    assert max(seen.values()) <= JOB_GIB
    assert workers(cores=16, available_gib=124.9, limits_gib=[124.1]) == 15
