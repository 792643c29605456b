"""What the loader makes: pyinfra's inventory with the site's documents, and a typed view of each host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from pyinfra.api.exceptions import DeployError
from pyinfra.api.host import Host
from pyinfra.api.inventory import Inventory
from pyinfra.connectors.local import LocalConnector

from roles.refusal import Refusal, nearest

if TYPE_CHECKING:  # roles import this module, so at run time it imports none of theirs
    from inventory.variables import Variables
    from roles.preflight.hardware import Hardware
    from roles.serve.profile import Profile
    from roles.weights.model import Model


PREVIOUS: Final = "previous"
"""The value of `profile` that means the one that served well before; only the host knows which."""


class Site(NamedTuple):
    """The documents that all hosts share, by name."""

    models: Mapping[str, Model]
    profiles: Mapping[str, Profile]


class Target(NamedTuple):
    """What is wanted of one host, typed."""

    variables: Variables
    """The variables that belong to no single role."""
    models: Mapping[str, Model]
    profiles: Mapping[str, Profile]
    found: Hardware | None = None
    """What the host was seen to have, if anybody has looked."""

    @property
    def wanted(self) -> str:
        """The value of `profile`: a profile's name, or PREVIOUS until `serving` has replaced it."""
        return self.variables.profile

    @property
    def profile(self) -> Profile:
        """The wanted profile. Raises Refusal if `wanted` is no profile's name (any more)."""
        if self.wanted not in self.profiles:
            raise Refusal(f"profile: unknown profile {self.wanted}; {nearest(self.wanted, self.profiles)}")
        return self.profiles[self.wanted]

    @property
    def model(self) -> Model:
        """The model of the wanted profile."""
        return self.models[self.profile.model]

    @property
    def hardware(self) -> Hardware | None:
        """What the host should have, where its groups say so; else what it was seen to have."""
        return self.variables.hardware or self.found

    @property
    def has_gpus(self) -> bool:
        return self.hardware is not None and self.hardware.gpus > 0

    def serving(self, profile: str) -> Target:
        """The same host with another profile wanted: how PREVIOUS becomes the name that the host remembers."""
        return self._replace(variables=self.variables.model_copy(update={"profile": profile}))


class SiteInventory(Inventory):
    """pyinfra's inventory, from files in Ansible's form."""

    def __init__(
        self,
        site: Site,
        hosts: Mapping[str, Mapping[str, object]],
        groups: Mapping[str, Iterable[str]],
        overrides: Mapping[str, object],
    ) -> None:
        """`hosts`: each one's merged variables; `groups`: the hosts of each; `overrides`: from `--data`."""
        super().__init__(([], {}), override_data=dict(overrides))
        self.site = site
        self.unreached: dict[str, str] = {}
        """Why a host could not be reached, where that is no reason to end the run."""
        self.warnings: Sequence[str] = ()
        """What is accepted in the files of the wanted profiles, and does not do what one would think."""
        self.found: dict[str, Hardware] = {}
        """What a host was seen to have, where nobody has declared it."""
        self.make_hosts_and_groups(
            [(name, dict(data)) for name, data in hosts.items()],
            {name: (list(members), {}) for name, members in groups.items()},
        )
        for host in self:
            if host.data.get("ansible_connection") == "local":
                host.connector_cls = LocalConnector

    def require(self, limit: Iterable[str], exclude: Iterable[str]) -> None:
        """Raise Refusal if a pattern of `--limit` or `--exclude` means nobody, or both together leave nobody.

        pyinfra itself only warns, and then deploys to nobody, or to one host more than was meant
        (https://github.com/pyinfra-dev/pyinfra/issues/685).
        """
        included = {host.name for pattern in limit for host in self._matching("--limit", pattern)}
        excluded = {host.name for pattern in exclude for host in self._matching("--exclude", pattern)}
        if not (included or set(self.hosts)) - excluded:
            raise Refusal("--exclude: leaves no host")

    def _matching(self, option: str, pattern: str) -> list[Host]:
        found = self.get_group(pattern, default=[]) or [host for host in self if fnmatch(host.name, pattern)]
        if not found:
            raise Refusal(
                f"{option}: no host or group matches {pattern}; {nearest(pattern, [*self.groups, *self.hosts])}"
            )
        return found


def found(host: Host, hardware: Hardware) -> None:
    """From now on `target(host).hardware` is what the host was seen to have, unless `hardware` is declared."""
    _inventory(host).found[host.name] = hardware


def target(host: Host) -> Target:
    """The typed view of a host of the inventory that the loader made."""
    from inventory.variables import variables_of  # here, because it imports the roles

    inventory = _inventory(host)
    data = cast(dict[str, object], host.data.dict())
    return Target(
        variables=variables_of(data),
        models=inventory.site.models,
        profiles=inventory.site.profiles,
        found=inventory.found.get(host.name),
    )


def _inventory(host: Host) -> SiteInventory:
    if not isinstance(host.inventory, SiteInventory):
        raise DeployError(f"host {host.name}: not from Slipway's loader; run pyinfra from Slipway's directory")
    return host.inventory
