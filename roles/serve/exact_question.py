"""The exact answer's question, from a profile and a host's hardware. Pure."""

from typing import Final

from roles.preflight.hardware import Hardware
from roles.serve.buffers import processors
from roles.serve.command import trusts_code
from roles.serve.exact import Question
from roles.serve.parallelism import Parallelism
from roles.serve.profile import Profile
from roles.sglang.catalogue import Catalogue
from roles.weights.config_files import config_files
from roles.weights.model import Model

NOT_ASKED: Final = frozenset({"device", "init_expert_location", "model_loader_extra_config", "served_model_name"})
"""Flags that change no tensor, and need a file or a checkpoint."""


def question(
    model: Model,
    profile: Profile,
    hardware: Hardware,
    catalogue: Catalogue,
    draft: Model | None = None,
) -> Question:
    """What to ask about `profile`, one rank of each pipeline stage."""
    parallelism = Parallelism.of(profile.server)
    server = {name: value for name, value in profile.server.items() if name not in NOT_ASKED}
    server["trust_remote_code"] = trusts_code(model, draft)
    return Question(
        name=profile.name,
        files=config_files(model),
        flags=tuple(word for flag in catalogue.flags(server) for word in flag),
        environment=profile.environment,
        draft_files=config_files(draft) if draft else {},
        ranks=tuple(stage * parallelism.tp for stage in range(parallelism.pp)),
        gpus=max(hardware.gpus, parallelism.tp * parallelism.pp),
        gpu=hardware.gpu,
        compute_capability=hardware.compute_capability,
        memory_mib=hardware.memory_mib,
        processors=processors(hardware),
    )
