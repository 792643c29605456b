"""What flash_attn reads from a host, in one round trip."""

import shlex
from collections.abc import Mapping
from typing import NamedTuple

from pyinfra.api.host import Host

from roles.flash_attn.builder import RECORD
from roles.flash_attn.wheels import KEPT, Release, versions
from roles.observation import observe
from roles.preflight.facts import SMI_SECONDS, bounded

_CAPABILITY = "command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=compute_cap --format=csv,noheader"


class FlashAttnFacts(NamedTuple):
    """The host as flash_attn found it."""

    record: str
    """What is installed and proved in the release; empty if nothing is."""
    capability: str
    """Of the first GPU; empty without one."""
    release: Release | None
    """None if the release is not in place (yet)."""
    wheels: Mapping[str, str]
    """Key -> path of the wheel kept on the host."""


def flash_attn_facts(host: Host, release: str, cuda_home: str) -> FlashAttnFacts:
    """Look at the release at path `release`, the toolkit beside it, and the wheels that are kept."""
    seen = observe(
        host,
        {
            "record": f"cat {shlex.quote(f'{release}/{RECORD}')}",
            "capability": bounded(_CAPABILITY, SMI_SECONDS),
            "release": versions(release, cuda_home),
            "wheels": f"ls -d {KEPT}/*/*.whl",
        },
    )
    return FlashAttnFacts(
        record="\n".join(seen["record"]),
        capability=seen["capability"][0] if seen["capability"] else "",
        release=Release.read(seen["release"]),
        wheels={path.split("/")[-2]: path for path in seen["wheels"]},
    )
