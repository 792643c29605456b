"""Make a host's plan: from its variables, from the records on the controller, and from the host if it answers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pyinfra.api.host import Host

from inventory import PREVIOUS, Target, target
from inventory.site import SiteInventory
from roles.benchmark.name import Name
from roles.benchmark.record import Record
from roles.benchmark.results import RESULTS, folder
from roles.files import File
from roles.preflight.facts import gpu_use
from roles.preflight.operations import exchange_on
from roles.preflight.report import Examination
from roles.preflight.tasks import examine
from roles.refusal import Refusal
from roles.serve import programs
from roles.serve.declared import Declared, declared, models_of, wanted_names
from roles.serve.exact_answers import exact_answers
from roles.serve.exact_question import question
from roles.serve.facts import ServeFacts, serve_facts
from roles.serve.good import accepted
from roles.serve.plan import Choice, Exact, Live, Plan, Row, changes, downtime, exchange, row
from roles.serve.profile import Profile
from roles.serve.settings import ServeSettings
from roles.serve.suits import Suitability, suitability
from roles.serve.unit import UNITS
from roles.sglang.catalogue import Catalogue
from roles.sglang.facts import sglang_facts
from roles.sglang.release import Release, Uv
from roles.sglang.settings import SglangSettings
from roles.weights.checkpoints import as_described
from roles.weights.facts import WeightsFacts, weights_facts
from roles.weights.layout import directory
from roles.weights.model import Model
from roles.weights.settings import WeightsSettings


class _Look(NamedTuple):
    """A host that answers, before a profile is looked at."""

    examined: Examination
    weights: WeightsFacts
    described: Mapping[str, Model]
    """Models as their weights there say they are, by name."""
    damaged: Mapping[str, str]
    """Why those of others are no model."""


def plan(host: Host) -> Plan:
    """What the host could serve, and what a deploy would change. Changes nothing."""
    assert isinstance(host.inventory, SiteInventory)  # as `target` sees to
    unreached = host.inventory.unreached.get(host.name)
    look = _look(host) if unreached is None else None  # first, as it finds GPUs that nobody declared
    wish, declaration = target(host), declared(host)
    wish = wish._replace(models={**wish.models, **(look.described if look else {})})
    judged = {name: _judged(profile, wish, declaration, look) for name, profile in wish.profiles.items()}
    records = last_records(RESULTS / folder(host.name))
    rows = {
        name: row(profile, *models_of(profile, wish), wish.hardware, judged[name].reasons, records.get(name, []))
        for name, profile in sorted(wish.profiles.items())
    }
    exact, inexact = _exact(host, wish, rows, reached=look is not None)
    return Plan(
        host=host.name,
        hardware=wish.hardware,
        unreachable=unreached,
        rows=tuple(one._replace(exact=exact.get(name)) for name, one in rows.items()),
        choice=_choice(host, wish, declaration, rows, judged, look),
        inexact=inexact,
    )


def _look(host: Host) -> _Look:
    examined, settings = examine(host), WeightsSettings.of(host)
    models = {directory(settings, model): model for model in target(host).models.values()}
    weights = weights_facts(host, models)
    whole = {path: model for path, model in models.items() if path in weights.complete}
    return _Look(examined, weights, *as_described(host, whole))


def _judged(profile: Profile, wish: Target, declaration: Declared, look: _Look | None) -> Suitability:
    """Whether the host can serve a profile with the weights that are there, or else with those that are declared."""
    if profile.name in declaration.unsuitable:
        return Suitability(declaration.unsuitable[profile.name])
    damaged = look.damaged if look else {}
    if problems := [damaged[name] for name in (profile.model, profile.draft) if name is not None and name in damaged]:
        return Suitability(problems)
    model, draft = models_of(profile, wish)
    return suitability(profile, model, wish.hardware, draft, wish.profiles)


def _exact(
    host: Host, wish: Target, rows: Mapping[str, Row], *, reached: bool
) -> tuple[dict[str, Exact], str | None]:
    """The exact answers by profile if they are asked for, or why there are none."""
    if not wish.variables.plan_exact:
        return {}, None
    if not reached:
        return {}, "the host was not reached, and they come from a release of SGLang"
    estimated = [wish.profiles[name] for name, one in rows.items() if one.memory is not None]
    if not estimated or wish.hardware is None:
        return {}, "nothing is known of the host's GPUs and their memory"
    version = SglangSettings.of(host).version
    release, catalogue = Release.of(version), Catalogue.load(version)
    questions = []
    for profile in estimated:
        model, draft = models_of(profile, wish)
        questions.append(question(model, profile, wish.hardware, catalogue, draft))
    answers = exact_answers(host, release.python, questions)
    if not answers:
        return {}, f"the release {release.name} does not answer; is it installed?"
    ranks = {profile.name: [one for one in answers if one.name == profile.name] for profile in estimated}
    return {name: Exact.of(found) for name, found in ranks.items() if found}, None


def last_records(folder: Path) -> dict[str, list[Record]]:
    """The last readable record of each profile with a measurement in a host's folder of `results`."""
    found: dict[str, list[Record]] = {}
    names = sorted(name for path in folder.glob("*.json") if (name := Name.parsed(path.name)) is not None)
    for name in reversed(names):
        if name.profile in found:
            continue
        path = folder / str(name)
        try:
            record = Record.read_json(path.read_text(encoding="utf-8"), str(path))
        except (OSError, Refusal):  # the report names it
            continue
        if record.points():
            found[name.profile] = [record]
    return found


def _choice(
    host: Host,
    wish: Target,
    declaration: Declared,
    rows: Mapping[str, Row],
    judged: Mapping[str, Suitability],
    look: _Look | None,
) -> Choice:
    seen = None if look is None else serve_facts(host, [file.path for file in _files(declaration)])
    if seen is None and wish.wanted == PREVIOUS:
        return _refused((PREVIOUS,), ["only the host knows the profile that was good before, and it was not reached"])
    try:
        names = wanted_names(host, seen)
    except Refusal as refusal:
        return _refused((PREVIOUS,), [str(refusal)])
    refusals = [f"{name}: {reason}" for name in names for reason in judged[name].reasons]
    if not ServeSettings.of(host).accept_tight:
        refusals += [f"{name}: {judged[name].tight}" for name in names if judged[name].tight]
    refusals += look.examined.refusals if look else []
    catalogue = Catalogue.load(SglangSettings.of(host).version)
    warnings = [warning for name in names for warning in catalogue.check(wish.profiles[name].server).warnings]
    warnings += look.examined.warnings if look else []
    if refusals or seen is None or look is None:
        return Choice(names, tuple(refusals), tuple(warnings), None, None)
    candidates = declaration.wanted(names, host.name)
    release, models = Release.of(SglangSettings.of(host).version), _models(host, wish, names)
    live = _live(host, declaration, seen, release, look.weights.complete)
    live = live._replace(untried=_untried(host, [wish.profiles[name] for name in names]))
    changed, leaving = changes(candidates, release.name, models, live)
    away, exchanging = downtime(candidates, leaving, rows, live), exchange(candidates, leaving, live)
    return Choice(names, (), tuple(warnings), changed, away, exchanging)


def _refused(names: tuple[str, ...], refusals: list[str]) -> Choice:
    return Choice(names, tuple(refusals), (), None, None)


def _files(declaration: Declared) -> list[File]:
    return [*programs.FILES, *(candidate.unit for candidate in declaration.candidates.values())]


def _models(host: Host, wish: Target, names: tuple[str, ...]) -> dict[str, Model]:
    """The models of the profiles by their directory on the host."""
    settings = WeightsSettings.of(host)
    profiles = [wish.profiles[name] for name in names]
    wanted = [wish.models[name] for profile in profiles for name in (profile.model, profile.draft) if name]
    return {directory(settings, model): model for model in wanted}


def _untried(host: Host, profiles: Sequence[Profile]) -> frozenset[str]:
    """Those whose GPUs must exchange values before they are served."""
    exchanges = {profile.name: tried for profile in profiles if (tried := exchange_on(host, profile))}
    seen = gpu_use(host) if exchanges else None
    return frozenset(name for name, tried in exchanges.items() if seen and not seen.proves(tried))


def _live(host: Host, declaration: Declared, seen: ServeFacts, release: Release, complete: frozenset[str]) -> Live:
    kept = {candidate.unit_name for candidate in declaration.candidates.values()}
    return Live(
        release=sglang_facts(host, release, Uv.locked()).release,
        weights=complete,
        units=seen.units,
        accepted=accepted(seen.history),
        stale_files=[
            file.path
            for file in _files(declaration)
            if file.path not in seen.files or seen.files[file.path].sha256 != file.sha256
        ],
        gone=sorted(f"{UNITS}/{name}" for name in seen.units if name not in kept),
    )
