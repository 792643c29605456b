"""What the preflight found, as text for a person and as JSON for a program. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import NamedTuple

from roles.preflight.checks import Finding
from roles.preflight.host_facts import HostFacts


class Examination(NamedTuple):
    """One host: what it has and what is not as it should be."""

    facts: HostFacts
    findings: Sequence[Finding]

    @property
    def refusals(self) -> list[str]:
        return [finding.sentence for finding in self.findings if finding.level == "refusal"]

    @property
    def warnings(self) -> list[str]:
        return [finding.sentence for finding in self.findings if finding.level == "warning"]


def as_json(examined: Mapping[str, Examination]) -> str:
    """{"ok": bool, "hosts": {name: {"ok", "findings": [{level, found, expected, remedy}], "facts"}}}"""
    hosts = {
        name: {
            "ok": not host.refusals,
            "findings": [finding._asdict() for finding in host.findings],
            "facts": asdict(host.facts),
        }
        for name, host in examined.items()
    }
    return json.dumps({"ok": all(host["ok"] for host in hosts.values()), "hosts": hosts}, indent=2)


def as_text(examined: Mapping[str, Examination]) -> str:
    """A paragraph for each host: a line for each GPU, then the findings, then the verdict."""
    return "\n\n".join("\n".join(_paragraph(name, host)) for name, host in examined.items())


def _paragraph(name: str, host: Examination) -> list[str]:
    facts = host.facts
    driver = f"driver {facts.driver.loaded}" if facts.driver.loaded else "no NVIDIA driver"
    slots = {slot.bus: slot for slot in facts.slots}
    lines = [f"{name}: {len(facts.slots)} GPUs, {driver}, {facts.cpus} CPUs, {facts.memory_gib:.0f} GiB memory"]
    for gpu in facts.gpus:
        node = slots[gpu.bus].numa_node if gpu.bus in slots else -1
        watts = f"{gpu.power_limit_watts:.0f} W" if gpu.power_limit_watts else "? W"
        lines.append(
            f"  GPU {gpu.index}  {gpu.bus}  {gpu.name}  {gpu.memory_mib} MiB  {gpu.compute_capability}  "
            f"{gpu.best_link} (now {gpu.link})  NUMA {node}  {watts}"
        )
    lines += [f"  {finding.level}: {finding.sentence}" for finding in host.findings]
    verdict = "refused" if host.refusals else "ready"
    return [*lines, f"  {verdict} (refusals: {len(host.refusals)}, warnings: {len(host.warnings)})"]
