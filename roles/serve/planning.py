"""Make a host's plan: from its variables, from the records on the controller, and from the host if it answers."""

from pathlib import Path
from typing import Final

from pyinfra.api.host import Host

from inventory import PREVIOUS, Target, target
from inventory.site import SiteInventory
from roles.benchmark.record import Name, Record
from roles.files import File
from roles.preflight.report import Examination
from roles.preflight.tasks import examine
from roles.refusal import Refusal
from roles.serve import programs
from roles.serve.declared import Declared, declared, wanted_names
from roles.serve.facts import ServeFacts, serve_facts
from roles.serve.good import accepted
from roles.serve.plan import Choice, Live, Plan, Row, changes, downtime, row
from roles.serve.unit import UNITS
from roles.sglang.catalogue import Catalogue
from roles.sglang.facts import sglang_facts
from roles.sglang.release import Release, Uv
from roles.sglang.settings import SglangSettings
from roles.weights.facts import weights_facts
from roles.weights.layout import directory
from roles.weights.model import Model
from roles.weights.settings import WeightsSettings

RESULTS: Final = Path("results")
"""On the controller: every benchmark record, by host."""


def plan(host: Host) -> Plan:
    """What the host could serve, and what a deploy would change. Changes nothing."""
    assert isinstance(host.inventory, SiteInventory)  # as `target` sees to
    unreached = host.inventory.unreached.get(host.name)
    examined = examine(host) if unreached is None else None  # first, as it finds GPUs that nobody declared
    wish, declaration = target(host), declared(host)
    records = last_records(RESULTS / host.name.replace("/", "_"))
    rows = {
        name: row(
            profile,
            wish.models[profile.model],
            wish.models[profile.draft] if profile.draft else None,
            wish.hardware,
            declaration.unsuitable.get(name, ()),
            records.get(name, []),
        )
        for name, profile in sorted(wish.profiles.items())
    }
    return Plan(
        host=host.name,
        hardware=wish.hardware,
        unreachable=unreached,
        rows=tuple(rows.values()),
        choice=_choice(host, wish, declaration, rows, examined),
    )


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
    host: Host, wish: Target, declaration: Declared, rows: dict[str, Row], examined: Examination | None
) -> Choice:
    seen = None if examined is None else serve_facts(host, [file.path for file in _files(declaration)])
    if seen is None and wish.wanted == PREVIOUS:
        return _refused((PREVIOUS,), ["only the host knows the profile that was good before, and it was not reached"])
    try:
        names = wanted_names(host, seen)
    except Refusal as refusal:
        return _refused((PREVIOUS,), [str(refusal)])
    refusals = [f"{name}: {reason}" for name in names for reason in declaration.against(name)]
    refusals += examined.refusals if examined else []
    catalogue = Catalogue.load(SglangSettings.of(host).version)
    warnings = [warning for name in names for warning in catalogue.check(wish.profiles[name].server).warnings]
    warnings += examined.warnings if examined else []
    if refusals or seen is None:
        return Choice(names, tuple(refusals), tuple(warnings), None, None)
    candidates = declaration.wanted(names, host.name)
    release, models = Release.of(SglangSettings.of(host).version), _models(host, wish, names)
    live = _live(host, declaration, seen, release, models)
    changed, leaving = changes(candidates, release.name, models, live)
    return Choice(names, (), tuple(warnings), changed, downtime(candidates, leaving, rows, live))


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


def _live(host: Host, declaration: Declared, seen: ServeFacts, release: Release, models: dict[str, Model]) -> Live:
    kept = {candidate.unit_name for candidate in declaration.candidates.values()}
    return Live(
        release=sglang_facts(host, release, Uv.locked()).release,
        weights=weights_facts(host, models).complete,
        units=seen.units,
        accepted=accepted(seen.history),
        stale_files=[
            file.path
            for file in _files(declaration)
            if file.path not in seen.files or seen.files[file.path].sha256 != file.sha256
        ],
        gone=sorted(f"{UNITS}/{name}" for name in seen.units if name not in kept),
    )
