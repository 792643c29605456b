"""serve: a unit for each profile that suits the host, and exactly the wanted ones running."""

from dataclasses import replace

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
from roles.serve.operations import served, stopped, units_read, units_removed
from roles.serve.settings import ServeSettings
from roles.serve.switch import Gate
from roles.serve.unit import UNITS


@deploy("serve")
def serve(gate: Gate) -> None:
    """Put the units in place and switch to the wanted profiles, each of which must pass `gate`."""
    settings, declaration = ServeSettings.of(host), declared(host)
    units = [candidate.unit for candidate in declaration.candidates.values()]
    files = [*programs.FILES, *units]
    seen = serve_facts(host, [file.path for file in files])
    try:
        running = settings.state == "running"
        wanted = declaration.wanted(wanted_names(host, seen), host.name) if running else []
        changed = _changed_keys(settings, seen)
    except Refusal as refusal:
        raise DeployError(str(refusal)) from None
    different = any(
        seen.files.get(file.path) is None or seen.files[file.path].sha256 != file.sha256 for file in units
    )
    files_in_place(name="Write programs and units", files=files, seen=seen.files)
    credentials_in_place(name="Write the keys", changed=changed)
    units_read(name="Let systemd read the units", needed=different or any(unit.stale for unit in seen.units.values()))
    if not running:
        stopped(name="Serve nothing", units=seen.units)
    else:
        served(
            name="Serve the profile",
            candidates=wanted,
            seen=_with_old_keys(seen) if changed else seen,
            gate=gate,
            prefetch=settings.prefetch,
        )
    gone = sorted({f"{UNITS}/{name}" for name in seen.units} - {unit.path for unit in units})
    units_removed(name="Remove the units of profiles that are gone", paths=gone)


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
    return replace(seen, units={name: replace(unit, keys_current=False) for name, unit in seen.units.items()})
