"""The preflight reads recorded hosts and says what is not as it should be."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from roles.observation import observed
from roles.preflight.checks import Expectation, Finding, compare
from roles.preflight.facts import NVIDIA_SMI, bounded
from roles.preflight.hardware import Hardware
from roles.preflight.host_facts import HostFacts, Link
from roles.preflight.parse import host_facts
from roles.preflight.report import Examination, as_json, as_text

HOSTS = Path(__file__).parent / "data" / "hosts"
RTX = Hardware(
    gpus=8,
    gpu="NVIDIA RTX PRO 6000 Blackwell Server Edition",
    memory_mib=97887,
    compute_capability="12.0",
    numa_nodes=2,
    pcie_generation=5,
    pcie_width=16,
)
H200 = Hardware(gpus=8, gpu="NVIDIA H200", memory_mib=143771, compute_capability="9.0", link="nvlink")


def recorded(name: str) -> HostFacts:
    return host_facts(observed((HOSTS / f"{name}.txt").read_text().splitlines()))


def check(name: str, hardware: Hardware | None = RTX, minimum_driver: str | None = "580.65.06") -> list[str]:
    """Findings as `level: sentence`."""
    found = compare(recorded(name), Expectation(hardware, minimum_driver))
    return [f"{finding.level}: {finding.sentence}" for finding in found]


@pytest.mark.parametrize(
    ("name", "hardware"),
    [
        ("rtx_pro_6000_x8", RTX),
        ("h200_x8", H200),
    ],
)
def test_a_host_as_declared_has_no_findings(name: str, hardware: Hardware) -> None:
    assert check(name, hardware) == []
    assert check(name, None) == []


@pytest.mark.parametrize(
    ("name", "hardware"),
    [
        ("rtx_pro_6000_x8", RTX.model_copy(update={"pcie_generation": 0, "pcie_width": 0})),
        ("h200_x8", H200.model_copy(update={"numa_nodes": 2})),
        ("bare", None),
    ],
)
def test_what_a_host_has_is_hardware_that_nobody_need_declare(name: str, hardware: Hardware | None) -> None:
    assert recorded(name).hardware == hardware


def test_a_host_without_cards_has_no_gpu_and_one_without_a_driver_is_not_known() -> None:
    seen = recorded("rtx_pro_6000_x8")
    assert replace(seen, gpus=(), slots=()).hardware == Hardware(gpus=0)
    assert replace(seen, gpus=()).hardware is None


def test_of_gpus_that_differ_the_smallest_memory_counts() -> None:
    seen = recorded("rtx_pro_6000_x8")
    other = (*seen.gpus[:7], replace(seen.gpus[7], memory_mib=90000))
    found = replace(seen, gpus=other).hardware
    assert found is not None
    assert (found.gpus, found.memory_mib) == (8, 90000)


def test_every_gpu_is_recorded_with_its_slot() -> None:
    facts = recorded("rtx_pro_6000_x8")
    gpu, slot = facts.gpus[5], facts.slots[5]
    assert (gpu.bus, gpu.memory_mib, gpu.compute_capability) == ("0000:a1:00.0", 97887, "12.0")
    assert (gpu.driver, gpu.power_limit_watts, gpu.persistence) == ("580.82.07", 600.0, True)
    assert (gpu.ecc, gpu.mig) == (False, False)
    assert (gpu.link, gpu.best_link) == (Link(1, 16), Link(5, 16))
    assert (slot.bus, slot.numa_node, slot.iommu, slot.bar_mib) == ("0000:a1:00.0", 1, "identity", 131072)
    assert (slot.link, slot.best_link, slot.bridges) == (Link(1, 16), Link(5, 16), ("0000:a0:01.1",))
    assert facts.p2p["GPU0"]["GPU7"] == "OK"
    assert facts.driver.open_modules
    assert "iommu=pt" in facts.boot_parameters
    assert (facts.locked_memory_kib, facts.open_files) == (None, 1024)


def test_nvlink_and_nvswitch_are_seen() -> None:
    facts = recorded("h200_x8")
    assert facts.nvlink
    assert facts.nvswitches == 4
    assert not recorded("rtx_pro_6000_x8").nvlink


def test_a_lost_gpu_is_refused_with_what_was_said_and_its_xid() -> None:
    refusals = [line for line in check("lost_gpu") if line.startswith("refusal")]
    assert len(refusals) == 2
    assert "of 8 GPUs 0000:a1:00.0 does not answer the driver" in refusals[0]
    assert "Unable to determine the device handle" in refusals[0]
    assert "power-cycle" in refusals[0]
    assert "Xid 79" in refusals[1]
    assert check("lost_gpu", None) == check("lost_gpu"), "what the host itself contradicts needs no declaration"


def test_a_gpu_gone_from_the_bus_is_refused() -> None:
    facts = recorded("rtx_pro_6000_x8")
    seven = replace(facts, slots=facts.slots[:7], gpus=facts.gpus[:7])
    [finding] = compare(seven, Expectation(RTX, None))
    assert finding.sentence == (
        "the PCI bus shows 7 GPUs, expected 8: "
        "reseat the missing card and check its power, or correct `hardware.gpus`."
    )


def test_half_a_link_is_refused_unless_declared() -> None:
    [line] = check("narrow_link")
    assert line.startswith("refusal: GPU 0000:61:00.0 runs on 8 PCIe lanes, expected 16: reseat")
    assert check("narrow_link", None) == [line]
    assert check("narrow_link", RTX.model_copy(update={"pcie_width": 8})) == []


def test_a_slot_below_the_declared_generation_is_refused() -> None:
    facts = recorded("rtx_pro_6000_x8")
    slow = replace(facts, gpus=(replace(facts.gpus[0], best_link=Link(4, 16)), *facts.gpus[1:]))
    [finding] = compare(slow, Expectation(RTX, None))
    assert finding.sentence.startswith("GPU 0000:01:00.0 reaches PCIe Gen4 at best, expected Gen5: ")


def test_another_card_is_refused_for_each_thing_that_differs() -> None:
    lines = check("h200_x8", RTX)
    assert lines[0] == (
        "refusal: GPU 0 is NVIDIA H200, expected NVIDIA RTX PRO 6000 Blackwell Server Edition: "
        "change the card or correct `hardware.gpu`."
    )
    assert "has 143771 MiB, expected 97887 MiB" in lines[1]
    assert "compute capability 9.0, expected 12.0" in lines[2]
    assert len(lines) == 24


def test_a_card_too_old_for_any_kernel_is_refused() -> None:
    facts = recorded("h200_x8")
    old = replace(facts, gpus=tuple(replace(gpu, compute_capability="7.5") for gpu in facts.gpus))
    assert compare(old, Expectation(None, None))[0].sentence.startswith(
        "GPU 0 has compute capability 7.5, expected 8.0 or higher: "
    )


def test_mig_is_refused_with_the_command_that_turns_it_off() -> None:
    facts = recorded("h200_x8")
    split = replace(facts, gpus=(replace(facts.gpus[0], mig=True), *facts.gpus[1:]))
    [finding] = compare(split, Expectation(H200, None))
    assert finding == Finding(
        "refusal", "GPU 0 has MIG on", "off", "run `nvidia-smi -i 0 -mig 0` with nothing using the GPU"
    )


def test_a_driver_that_is_too_old_missing_or_mixed_is_refused() -> None:
    [line] = check("rtx_pro_6000_x8", minimum_driver="590.48.01")
    assert line.startswith("refusal: driver 580.82.07 is loaded, expected 590.48.01 or newer: ")
    [line] = check("bare")
    assert line.startswith("refusal: no NVIDIA driver is loaded, expected 580.65.06 or newer: ")
    installed = replace(recorded("secure_boot"), driver=replace(recorded("bare").driver, installed="580.82.07"))
    [finding] = compare(installed, Expectation(RTX, "580.65.06"))
    assert finding.sentence.endswith(": enrol the key that driver 580.82.07 is signed with, or turn Secure Boot off.")
    [line] = check("library_mismatch")
    assert line.startswith("refusal: kernel module 580.82.07 runs beside library 580.95.05, expected one version: ")


def test_a_bare_host_is_right_when_the_run_brings_the_driver() -> None:
    assert check("bare", minimum_driver=None) == []


def test_a_hanging_driver_is_refused_not_waited_for() -> None:
    lines = check("hanging")
    assert lines[0].startswith("refusal: nvidia-smi does not answer, expected an answer within a minute: ")
    assert "Xid 119" in lines[1]


def test_garbage_is_told_as_it_came() -> None:
    [line] = check("garbage")
    assert "of 8 GPUs 0000:01:00.0 and 7 more does not answer" in line
    assert "GLIBC_2.38" in line


def test_what_costs_speed_is_warned_of_with_the_remedy() -> None:
    lines = check("untuned")
    assert all(line.startswith("warning: ") for line in lines)
    told = "\n".join(lines)
    for remedy in (
        "turn ACS off",
        "iommu=pt",
        "Resizable BAR",
        "cpupower",
        "kernel.numa_balancing: 0",
        "cuda_persistence",
        "28 pairs of GPUs",
    ):
        assert remedy in told
    assert "0000:f0:03.1" not in told, "a bridge with no GPU below it does not matter"


def test_an_error_of_a_program_is_no_fault_of_the_host() -> None:
    lines = ["NVRM: Xid (PCI:0000:41:00): 31, pid=1, name=python, MMU Fault"]
    xids = host_facts({"xids": lines}).xids
    facts = replace(recorded("rtx_pro_6000_x8"), xids=xids)
    assert xids[0].code == 31
    assert compare(facts, Expectation(RTX, None)) == ()


def test_a_host_declared_without_gpus_is_not_asked_for_any() -> None:
    assert compare(host_facts({}), Expectation(Hardware(gpus=0), "580.65.06")) == ()


def test_an_undeclared_host_without_gpus_is_told_how_to_say_so() -> None:
    assert "hardware: {gpus: 0}" in compare(host_facts({}), Expectation(None, None))[0].sentence


def test_the_json_report_holds_verdict_findings_and_facts() -> None:
    facts = recorded("narrow_link")
    report = json.loads(as_json({"h1": Examination(facts, compare(facts, Expectation(RTX, None)))}))
    assert report["ok"] is False
    assert report["hosts"]["h1"]["findings"][0]["expected"] == "16"
    assert report["hosts"]["h1"]["facts"]["gpus"][0]["memory_mib"] == 97887


def test_the_text_report_has_a_line_for_each_gpu_and_a_verdict() -> None:
    facts = recorded("narrow_link")
    text = as_text({"h1": Examination(facts, compare(facts, Expectation(RTX, None)))})
    assert "GPU 3  0000:61:00.0" in text
    assert "Gen5 x16 (now Gen1 x8)" in text
    assert text.endswith("refused (refusals: 1, warnings: 0)")


def run(program: str, path: str = os.defpath) -> str:
    done = subprocess.run(["sh", "-c", program], env={"PATH": path}, capture_output=True, text=True, check=True)
    return done.stdout


def test_an_nvidia_smi_that_hangs_is_ended_and_found(tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 1000\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    answer = run(bounded(NVIDIA_SMI, 0.1), f"{tmp_path}:{os.defpath}").splitlines()
    seen = observed((HOSTS / "rtx_pro_6000_x8.txt").read_text().splitlines()) | {"nvidia-smi": answer}
    [finding] = compare(host_facts(seen), Expectation(RTX, "580.65.06"))
    assert finding.sentence.startswith("nvidia-smi does not answer, expected an answer within a minute: a GPU or ")


def test_a_program_that_answers_is_heard_errors_included() -> None:
    assert run(bounded("echo one; echo two >&2; exit 9", 10)) == "one\ntwo\n"
