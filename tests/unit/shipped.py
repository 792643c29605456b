"""What the repository ships, for tests: its models, its profiles, and the host that most of them are for."""

from functools import cache
from pathlib import Path

from inventory import Site, load, target
from roles.preflight.hardware import Hardware
from roles.serve.profile import Flag, Profile
from roles.weights.model import Model

ROOT = Path(__file__).parents[2]


@cache
def _inventory() -> tuple[Site, Hardware]:
    inventory = load(str(ROOT / "inventory/examples"), {})
    hardware = target(next(iter(inventory))).hardware
    assert hardware is not None
    return inventory.site, hardware


def site() -> Site:
    return _inventory()[0]


def rtx_pro_6000_x8() -> Hardware:
    return _inventory()[1]


def profile(name: str) -> Profile:
    return site().profiles[name]


def model_of(profile: Profile) -> Model:
    return site().models[profile.model]


def draft_of(profile: Profile) -> Model | None:
    return site().models[profile.draft] if profile.draft else None


def changed(name: str, **server: Flag | None) -> Profile:
    """A shipped profile with other flags; None takes one away."""
    shipped = profile(name)
    flags = {flag: value for flag, value in (shipped.server | server).items() if value is not None}
    return shipped.model_copy(update={"server": flags})
