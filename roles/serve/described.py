"""What weights and servers on a host say of themselves, against what was estimated."""

import shlex
from collections.abc import Mapping

from pyinfra import logger
from pyinfra.api.host import Host

from inventory import target
from roles.paths import USER
from roles.remote import attempt
from roles.serve.candidate import Candidate
from roles.serve.declared import models_of
from roles.serve.memory import estimate
from roles.serve.parallelism import on_cpu
from roles.serve.profile import Profile
from roles.serve.reported import compare
from roles.serve.settings import ServeSettings
from roles.serve.steps import SwitchError
from roles.serve.suits import suitability
from roles.weights.checkpoints import as_described
from roles.weights.layout import directory
from roles.weights.model import Model
from roles.weights.settings import WeightsSettings


def check_weights(host: Host, candidate: Candidate) -> None:
    """The candidate's weights are whole, the server may read them, and with their own dimensions it suits the host.

    Raises SwitchError.
    A profile was judged by its model's file before its weights were there: a draft model, say, may be larger.
    """
    wish, profile = target(host), candidate.profile
    model, draft, damaged = _models_there(host, profile)
    if damaged:
        raise SwitchError("\n".join(f"{profile.name}: {problem}" for problem in damaged))
    _check_readable(host, profile)
    found = suitability(profile, model, wish.hardware, draft, wish.profiles)
    reasons = [*found.reasons]
    if found.tight and not ServeSettings.of(host).accept_tight:
        reasons.append(found.tight)
    if reasons:
        raise SwitchError("\n".join(f"{profile.name}, by its weights on the host: {reason}" for reason in reasons))


def _check_readable(host: Host, profile: Profile) -> None:
    settings = WeightsSettings.of(host)
    for model in filter(None, models_of(profile, target(host))):
        folder = shlex.quote(directory(settings, model))
        _, hidden = attempt(host, f"runuser -u {USER} -- find -L {folder} ! -readable 2>&1 | head -n 1")
        if hidden:
            raise SwitchError(
                f"{profile.name}: the server's user {USER} may not read its weights: {hidden.strip()}; "
                f"`chmod -R a+rX {folder}`, and see with `namei -l` whether it may search the folders above"
            )


def compare_memory(host: Host, candidate: Candidate, reported: Mapping[str, object]) -> None:
    """Say where the memory that a started server reports is not as estimated, by more than the error band.

    `reported` is `memory_usage` in the server's /server_info. Of a server on the CPU there is no estimate.
    """
    profile, hardware = candidate.profile, target(host).hardware
    if not reported or on_cpu(profile) or hardware is None or not hardware.memory_mib:
        return
    model, draft, _ = _models_there(host, profile)
    for difference in compare(estimate(model, profile, hardware, draft), reported):
        if difference.exceeds_band:
            host.log(f"{profile.name}: the memory estimate is wrong: {difference.sentence}", logger.warning)


def _models_there(host: Host, profile: Profile) -> tuple[Model, Model | None, list[str]]:
    """A profile's model and draft model as their weights on the host say they are, and why one is no model."""
    model, draft = models_of(profile, target(host))
    settings = WeightsSettings.of(host)
    described, damaged = as_described(host, {directory(settings, one): one for one in (model, draft) if one})
    return described.get(model.name, model), draft and described.get(draft.name, draft), list(damaged.values())
