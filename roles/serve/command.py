"""What a profile means to SGLang: the command line, the environment, and a fingerprint of both. Pure."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from roles import paths
from roles.serve.profile import Profile
from roles.serve.settings import ServeSettings
from roles.sglang.catalogue import Catalogue
from roles.weights.model import Model

RESERVED: Final = {
    "model_path": "it follows from `model`",
    "speculative_draft_model_path": "it follows from `draft`",
    "trust_remote_code": "it follows from the model, whose file in group_vars/models says so",
    "host": "it is the variable serve_host",
    "api_key": "secrets do not stand in a profile",
    "admin_api_key": "secrets do not stand in a profile",
    "config": "the profile itself is the configuration",
    "base_gpu_id": "use `gpus`",
    "gpu_id_step": "use `gpus`",
}
"""Flags that are not a profile's to set, and what to use instead."""


class Command(NamedTuple):
    """How a server is started."""

    program: tuple[str, ...]
    flags: tuple[tuple[str, ...], ...]
    """Each flag's full name with its values."""
    environment: Mapping[str, str]
    port: int

    @property
    def cache(self) -> str:
        """The directory of what can be made again, compiled kernels among it."""
        return self.environment["HOME"]

    @property
    def argv(self) -> tuple[str, ...]:
        return (*self.program, *(word for flag in self.flags for word in flag))

    @property
    def fingerprint(self) -> str:
        """16 hex digits that change when, and only when, a restart is needed."""
        content = json.dumps([self.argv, dict(sorted(self.environment.items()))])
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def port_of(profile: Profile, settings: ServeSettings) -> int:
    """The port that a profile's server listens on."""
    port = profile.server.get("port", settings.port)
    assert isinstance(port, int)  # the catalogue has checked it
    return port


def served_name(profile: Profile) -> str:
    """The name under which clients ask for the model."""
    return str(profile.server.get("served_model_name", profile.model))


def trusts_code(model: Model, draft: Model | None) -> bool:
    """Whether Python code that comes with the weights may run: SGLang has one flag for both models."""
    return model.trust_remote_code or (draft is not None and draft.trust_remote_code)


def command(
    profile: Profile,
    settings: ServeSettings,
    catalogue: Catalogue,
    *,
    release: str,
    launcher: str | None = None,
    weights: str,
    draft: str | None = None,
    trust_remote_code: bool,
    cuda_home: str | None = None,
) -> Command:
    """The command of `profile` on a host.

    `release`, `weights` and `draft` (the draft model's weights) are directories on the host; `launcher` is the
    program that starts a server with keys, None for one without; `trust_remote_code` is what `trusts_code` says.
    `cuda_home` is the toolkit that kernels are compiled with when a server starts, None where it serves on the CPU.
    """
    flags = {
        **profile.server,
        "model_path": weights,
        "served_model_name": served_name(profile),
        "host": settings.host,
        "port": port_of(profile, settings),
        **({"speculative_draft_model_path": draft} if draft else {}),
        "trust_remote_code": trust_remote_code,
    }
    return Command(
        program=(*((f"{release}/bin/python", "-P", launcher) if launcher else (f"{release}/bin/sglang",)), "serve"),
        flags=catalogue.flags(flags),
        environment=_environment(profile, settings, release, cuda_home),
        port=port_of(profile, settings),
    )


def _cache(release: str, cuda_home: str | None) -> str:
    """Of each release and toolkit its own, so that kernels compiled for one are never met by another."""
    name = PurePosixPath(release).name
    if cuda_home and not PurePosixPath(cuda_home).is_relative_to(release):
        name += f"-{PurePosixPath(cuda_home).name}"
    return f"{paths.CACHE}/{name}"


def _environment(profile: Profile, settings: ServeSettings, release: str, cuda_home: str | None) -> dict[str, str]:
    cache = _cache(release, cuda_home)
    path = [
        f"{release}/bin",
        *([f"{cuda_home}/bin"] if cuda_home else []),
        "/usr/local/bin",
        "/usr/bin",
        "/bin",
    ]
    values = {
        # Bare `ninja`, `nvcc`, `c++` and `numactl` are looked up when kernels are compiled and ranks are bound.
        "PATH": ":".join(path),
        "HOME": cache,
        "SGLANG_CACHE_DIR": f"{cache}/sglang",
        "SGLANG_JIT_CACHE_DIR": f"{cache}/jit",
        "SGLANG_EXPERT_DISTRIBUTION_RECORDER_DIR": f"{cache}/expert-distribution",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if cuda_home:
        values["CUDA_HOME"] = cuda_home
    if profile.gpus != "all":
        values["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, profile.gpus))
    return values | settings.environment | profile.environment
