"""serve: a unit for each profile that suits the host, and exactly the wanted ones running."""

from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError
from pyinfra.context import host

from roles.credentials import Credential, changed_credentials, credentials_in_place
from roles.files import files_in_place
from roles.refusal import Refusal
from roles.serve import programs
from roles.serve.declared import declared, wanted_names
from roles.serve.facts import ServeFacts, serve_facts
from roles.serve.keys import declared_keys
from roles.serve.operations import served, stopped, units_in_place, units_removed
from roles.serve.settings import ServeSettings
from roles.serve.switch import Gate, KeepFailure


@deploy("serve")
def serve(gate: Gate, keep_failure: KeepFailure) -> None:
    """Put the units in place and switch to the wanted profiles, each of which must pass `gate`."""
    settings, declaration = ServeSettings.of(host), declared(host)
    units = {candidate.unit_name: candidate.unit for candidate in declaration.candidates.values()}
    seen = serve_facts(host, [file.path for file in [*programs.FILES, *units.values()]])
    try:
        running = settings.state == "running"
        wanted = declaration.wanted(wanted_names(host, seen), host.name) if running else []
        changed = _changed_keys(settings, seen)
    except Refusal as refusal:
        raise DeployError(str(refusal)) from None
    booted = {name for name, unit in seen.units.items() if unit.enabled}
    files_in_place(name="Write the programs", files=programs.FILES, seen=seen.files)
    units_in_place(
        name="Write the units", units=[unit for name, unit in units.items() if name not in booted], seen=seen
    )
    credentials_in_place(name="Write the keys", changed=changed)
    if not running:
        stopped(name="Serve nothing", units=seen.units)
    else:
        served(
            name="Serve the profile",
            candidates=wanted,
            seen=_with_old_keys(seen) if changed else seen,
            gate=gate,
            keep_failure=keep_failure,
            prefetch=settings.prefetch,
        )
    # Written before the switch, they would be started unproven by a boot after a power failure.
    units_in_place(
        name="Write the units that a boot starts",
        units=[unit for name, unit in units.items() if name in booted],
        seen=seen,
    )
    units_removed(name="Remove the units of profiles that are gone", names=sorted(seen.units.keys() - units.keys()))


def _changed_keys(settings: ServeSettings, seen: ServeFacts) -> list[Credential]:
    """The keys that are not on the host as declared; it is not asked where none is, nor should be.

    Raises Refusal if the controller cannot read one.
    """
    keys = [
        Credential.of(name, secret, "serve_" + name.replace("-", "_"))
        for name, secret in declared_keys(settings).items()
    ]
    known = set(seen.credentials)
    return changed_credentials(host, keys) if any(key.value or key.name in known for key in keys) else []


def _with_old_keys(seen: ServeFacts) -> ServeFacts:
    """What was seen, once other keys are in place: no process has them yet."""
    return seen._replace(units={name: unit._replace(keys_current=False) for name, unit in seen.units.items()})
