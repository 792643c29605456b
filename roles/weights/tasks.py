"""weights: the models of the wanted profiles, whole and in place."""

from collections.abc import Iterable

from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError
from pyinfra.context import host

from inventory import Target, target
from roles.base.operations import packages_installed
from roles.bundle.operations import apt_environment, wanted_bundle
from roles.credentials import Credential, changed_credentials, credentials_in_place
from roles.refusal import Refusal
from roles.serve.declared import wanted_names
from roles.sglang.release import Release
from roles.sglang.settings import SglangSettings
from roles.weights.facts import WeightsFacts, weights_facts
from roles.weights.layout import check_room, check_source, directory, fetching, pinned
from roles.weights.model import Model
from roles.weights.operations import model_in_place, old_weights_removed
from roles.weights.progress import amount
from roles.weights.settings import WeightsSettings
from roles.weights.sources import TOKEN


@deploy("weights")
def weights(also: Iterable[str] = ()) -> None:
    """Bring the weights that the wanted profiles, and others by name, need to the host."""
    settings, wish = WeightsSettings.of(host), target(host)
    try:
        models = _models(settings, wish, [*wanted_names(host), *also])
    except Refusal as refusal:
        raise DeployError(str(refusal)) from None
    seen = weights_facts(host, models)
    missing = {path: model for path, model in models.items() if path not in seen.complete}
    try:
        for model in models.values():
            check_source(model, offline=wish.variables.bundle is not None and model in missing.values())
        if missing and (bundle := wanted_bundle(host)):
            bundle.check()
            models |= {path: pinned(model, bundle.manifest_of(model.name)) for path, model in missing.items()}
        _check_room(settings, missing, seen)
        token = _changed_token(settings, seen)
    except Refusal as refusal:
        raise DeployError(f"host {host.name}: {refusal}") from None
    if any(model.source.rsync for model in missing.values()):
        installed = frozenset({"rsync"} if seen.has_rsync else ())
        packages_installed(name="Install rsync", packages=["rsync"], installed=installed, _env=apt_environment(host))
    credentials_in_place(name="Write the token for the hub", changed=token)
    python = Release.of(SglangSettings.of(host).version).python
    for path in host.loop(models):
        model_in_place(
            name="Bring the weights",
            model=models[path],
            directory=path,
            settings=settings,
            python=python,
            complete=path in seen.complete,
        )
    old = _old(settings, wish, seen)
    if old and settings.remove_old:
        old_weights_removed(name="Remove old weights", folders=old)
    for path in old if not settings.remove_old else ():
        size = amount(seen.folders[path].bytes)
        host.log(f"{path}: {size} that nothing refers to; `weights_remove_old: true` removes them")


def _models(settings: WeightsSettings, wish: Target, profiles: Iterable[str]) -> dict[str, Model]:
    """The models of these profiles by their directory."""
    wanted = [wish.profiles[name] for name in profiles]
    names = {name for profile in wanted for name in (profile.model, profile.draft) if name}
    return {directory(settings, wish.models[name]): wish.models[name] for name in sorted(names)}


def _check_room(settings: WeightsSettings, missing: dict[str, Model], seen: WeightsFacts) -> None:
    if seen.free is not None:
        begun = [seen.folders[path].bytes for path in map(fetching, missing) if path in seen.folders]
        check_room(missing.values(), settings.root, begun=sum(begun), free=seen.free)


def _changed_token(settings: WeightsSettings, seen: WeightsFacts) -> list[Credential]:
    """The token if it is not on the host as declared; it is not asked where none is, nor should be.

    Raises Refusal if the controller cannot read it.
    """
    if not (settings.token or seen.has_token):
        return []
    return changed_credentials(host, [Credential.of(TOKEN, settings.token, "weights_token")])


def _old(settings: WeightsSettings, wish: Target, seen: WeightsFacts) -> list[str]:
    """Weights, unfinished ones included, that no profile, no unit and no running server refers to."""
    declared = _models(settings, wish, wish.profiles)
    kept = {*declared, *map(fetching, declared)}
    return [path for path, folder in seen.folders.items() if path not in kept and not folder.used]
