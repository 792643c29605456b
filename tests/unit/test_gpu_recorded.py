"""What one H200 wrote and ran, recorded by the harness for real GPUs (SGLang 0.5.17, driver 580.159, CUDA 13.0)."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

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


def test_the_line_that_is_read_says_what_the_drivers_full_report_says() -> None:
    report = ElementTree.parse(RECORDED / "h200_x1.xml").getroot()
    gpu = host().gpus[0]

    def said(path: str) -> str:
        return (report.findtext(path) or "").split(" ")[0]

    links = {
        moment: (said(f".//{moment}_link_gen"), said(f".//{moment}_link_width").rstrip("x"))
        for moment in ("current", "max")
    }
    assert report.findtext("gpu/product_name") == gpu.name
    assert said("driver_version") == gpu.driver
    assert int(said("gpu/fb_memory_usage/total")) == gpu.memory_mib
    assert said("gpu/pci/pci_bus_id").lower().endswith(gpu.bus)
    assert (links["current"], links["max"]) == tuple(
        (str(link.generation), str(link.width)) for link in (gpu.link, gpu.best_link)
    )
    assert float(said("gpu/gpu_power_readings/current_power_limit")) == gpu.power_limit_watts
    assert float(said("gpu/gpu_power_readings/default_power_limit")) == gpu.default_power_limit_watts
    switches = ("persistence_mode", "ecc_mode/current_ecc", "mig_mode/current_mig")
    assert [said(f"gpu/{switch}") == "Enabled" for switch in switches] == [gpu.persistence, gpu.ecc, gpu.mig]


FAILURES = {
    "load": ("out of memory loading weights", "Tried to allocate 2.62 GiB"),
    "kv_pool": ("out of memory in the KV pool", "Tried to allocate 6.55 GiB"),
    "graphs": ("out of memory capturing graphs", "Tried to allocate 10.52 GiB"),
    "fraction_too_low": ("memory fraction too low", "Raise --mem-fraction-static above 0.567"),
    "weights_missing": ("weights missing", "Cannot find any model weights with `/srv/models/m`"),
}


@pytest.mark.parametrize(("name", "expected"), FAILURES.items())
def test_failures_that_the_harness_brought_about_are_recognised(name: str, expected: tuple[str, str]) -> None:
    kind, evidence = expected
    explanation = explain((RECORDED / "failures" / f"{name}.txt").read_text(), result="exit-code", exit_status=9)

    assert explanation.kind == kind
    assert evidence in explanation.evidence


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
    # With these 16, all 73 files were compiled.
    assert workers(cores=16, available_gib=125.2, limits_gib=[126.5]) == 16
