"""serve: a unit for each profile that suits the host, and exactly the wanted ones running."""

from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError
from pyinfra.context import host

from roles.files import files_in_place
from roles.refusal import Refusal
from roles.serve import programs
from roles.serve.declared import declared, wanted_names
from roles.serve.facts import serve_facts
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
        wanted = declaration.wanted(wanted_names(host, seen), host.name)
    except Refusal as refusal:
        raise DeployError(str(refusal)) from None
    different = any(
        seen.files.get(file.path) is None or seen.files[file.path].sha256 != file.sha256 for file in units
    )
    files_in_place(name="Write programs and units", files=files, seen=seen.files)
    units_read(name="Let systemd read the units", needed=different or any(unit.stale for unit in seen.units.values()))
    if settings.state == "stopped":
        stopped(name="Serve nothing", units=seen.units)
    else:
        served(name="Serve the profile", candidates=wanted, seen=seen, gate=gate, prefetch=settings.prefetch)
    gone = sorted({f"{UNITS}/{name}" for name in seen.units} - {unit.path for unit in units})
    units_removed(name="Remove the units of profiles that are gone", paths=gone)
