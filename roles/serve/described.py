"""Whether weights that are on a host can be served there, by what they say of themselves."""

from pyinfra.api.host import Host

from inventory import target
from roles.serve.candidate import Candidate
from roles.serve.declared import models_of
from roles.serve.settings import ServeSettings
from roles.serve.steps import SwitchError
from roles.serve.suits import suitability
from roles.weights.checkpoints import as_described
from roles.weights.layout import directory
from roles.weights.settings import WeightsSettings


def check_weights(host: Host, candidate: Candidate) -> None:
    """The candidate's weights are whole, and with their own dimensions it suits the host. Raises SwitchError.

    A profile was judged by its model's file before its weights were there: a draft model, say, may be larger.
    """
    wish, profile, settings = target(host), candidate.profile, WeightsSettings.of(host)
    model, draft = models_of(profile, wish)
    described, damaged = as_described(host, {directory(settings, one): one for one in (model, draft) if one})
    if damaged:
        raise SwitchError("\n".join(f"{profile.name}: {problem}" for problem in damaged.values()))
    found = suitability(
        profile,
        described.get(model.name, model),
        wish.hardware,
        described.get(draft.name, draft) if draft else None,
        wish.profiles,
    )
    reasons = [*found.reasons]
    if found.tight and not ServeSettings.of(host).accept_tight:
        reasons.append(found.tight)
    if reasons:
        raise SwitchError("\n".join(f"{profile.name}, by its weights on the host: {reason}" for reason in reasons))
