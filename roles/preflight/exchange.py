"""Under which conditions the GPUs exchange values, and what the program that lets them says. Pure."""

import hashlib
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from roles.paths import PROGRAMS, STATE, USER
from roles.serve.parallelism import on_cpu
from roles.serve.profile import Profile

PROOF: Final = f"{STATE}/collective-proof"
"""On the host: the conditions of each success, a line each."""

SOURCE: Final = Path(__file__).with_name("collective.py")
PROGRAM: Final = f"{PROGRAMS}/collective.py"
"""The program here, and on the host."""

SECONDS: Final = 180
"""Eight ranks import torch and connect in half a minute; the exchange itself takes a few seconds."""


class Exchange(NamedTuple):
    """What is tried."""

    release: str
    """Path of the release, whose torch is used."""
    ranks: int
    environment: Mapping[str, str]
    """The server's own variables, NCCL's among them."""

    def identity(self, driver: str) -> str:
        """Changes with whatever the result depends on."""
        conditions = [driver, self.release, self.ranks, sorted(self.environment.items()), SOURCE.read_text()]
        return hashlib.sha256(json.dumps(conditions).encode()).hexdigest()

    @property
    def command(self) -> str:
        """The shell command that runs the program as the server's user."""
        variables = " ".join(shlex.quote(f"{name}={value}") for name, value in self.environment.items())
        python = shlex.quote(f"{self.release}/bin/python")
        return f"cd / && runuser -u {USER} -- env {variables} {python} {PROGRAM} nccl {self.ranks} {SECONDS}"


def exchange_of(profile: Profile, *, gpus: int, release: str, environment: Mapping[str, str]) -> Exchange | None:
    """What a profile relies on; None if it uses fewer than two GPUs.

    `gpus` is how many the host has, `environment` what all of its servers are given.
    """
    used = tuple(range(gpus)) if profile.gpus == "all" else profile.gpus
    if on_cpu(profile) or len(used) < 2:
        return None
    visible = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, used))}
    return Exchange(release, len(used), {**environment, **profile.environment, **visible})


def report(output: str) -> tuple[str, list[str]]:
    """The problem, empty if there is none, and a line for each measurement, from what the program printed."""
    last = (output.strip().splitlines() or ["it said nothing"])[-1]
    try:
        document: dict[str, Any] = json.loads(last)
    except ValueError:
        return last[:300], []
    return document["problem"], [
        f"{one['collective']} of {one['bytes'] // 2**10} KiB: {one['microseconds']:.0f} us, "
        f"{one['bus_gb_s']:.1f} GB/s on the bus"
        for one in document["measured"]
    ]
