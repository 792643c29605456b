"""weights: the models of the wanted profiles, whole and in place."""

from pyinfra.api.deploy import deploy
from pyinfra.context import host

from inventory import target
from roles.serve.declared import wanted_names
from roles.sglang.release import Release
from roles.sglang.settings import SglangSettings
from roles.weights.facts import weights_facts
from roles.weights.layout import directory
from roles.weights.operations import generated
from roles.weights.settings import WeightsSettings


@deploy("weights")
def weights() -> None:
    """Bring the weights that the wanted profiles need to the host."""
    settings, wish = WeightsSettings.of(host), target(host)
    profiles = [wish.profiles[name] for name in wanted_names(host)]
    names = {name for profile in profiles for name in (profile.model, profile.draft) if name}
    models = {directory(settings, wish.models[name]): wish.models[name] for name in sorted(names)}
    seen = weights_facts(host, models)
    python = Release.of(SglangSettings.of(host).version).python
    for path in host.loop(models):
        model = models[path]
        if model.source.generate:
            generated(
                name="Make the model",
                kind=model.source.generate,
                directory=path,
                python=python,
                complete=path in seen.complete,
            )
