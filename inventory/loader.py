"""From what stands on pyinfra's command line to an inventory in which everything has been checked."""

import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from pyinfra.connectors.sshuserclient.client import get_ssh_config

from inventory.connection import Connection
from inventory.documents import read_models, read_profiles
from inventory.hosts import Tree, only_hosts, read_hosts
from inventory.layers import Layers
from inventory.names import check_name
from inventory.problems import Problems
from inventory.site import Site, SiteInventory, target
from inventory.values import Values, plain, values_from
from inventory.variables import check
from inventory.yamlfile import EXTENSIONS, is_yaml, shown
from roles.refusal import Refusal, nearest
from roles.sglang.catalogue import Catalogue
from roles.sglang.release import locked_versions
from roles.sglang.settings import SglangSettings

ROOT: Final = Path(__file__).resolve().parent.parent

_CHECKING: Final = "ssh_strict_host_key_checking"
"""pyinfra's own default trusts whoever answers first."""


def load(source: str | Path, data: Mapping[str, object] | None = None, root: Path = ROOT) -> SiteInventory:
    """The inventory that `source` means: a directory, one file of it, or hosts separated by commas.

    `data` is what `--data` gave; `root` is where Slipway's own group_vars are.
    Raises Refusal with one sentence for everything that is wrong, in all files and for all hosts.
    """
    problems = Problems()
    overrides = values_from(data or {}, "--data")
    tree, layers = _read(str(source), overrides, root, problems)
    groups = {"all": list(tree.hosts)}
    for name in sorted(tree.groups.keys() - {"all"}, key=lambda name: (tree.depths[name], name)):
        groups[name] = [host for host in tree.hosts if name in tree.groups_of(host)]

    model_files, profile_files = layers.documents("models"), layers.documents("profiles")
    for name in groups.keys() & profile_files.keys():
        problems.add(f"{shown(profile_files[name])}: a group has this name too; rename one of them")
    layers.refuse_unread(groups, tree.hosts)

    hosts = {}
    for host in tree.hosts:
        values = layers.values(tree, host)
        check(host, values | overrides, profile_files, problems)
        hosts[host] = {_CHECKING: Connection.model_fields[_CHECKING].default, **plain(values)}
    models = read_models(model_files, problems)
    catalogues = _catalogues([{**values, **plain(overrides)} for values in hosts.values()], problems)
    profiles = read_profiles(profile_files, model_files, problems, catalogues)
    problems.refuse()
    inventory = SiteInventory(Site(models, profiles), hosts, groups, plain(overrides))
    inventory.warnings = _warnings(inventory, profile_files)
    return inventory


def _warnings(inventory: SiteInventory, files: Mapping[str, Path]) -> list[str]:
    """What SGLang takes from the wanted profiles, but not for ever, or to no effect."""
    found: dict[str, None] = {}
    for host in inventory:
        catalogue, wish = Catalogue.load(SglangSettings.of(host).version), target(host)
        for name in {*wish.variables.profiles, wish.wanted} & wish.profiles.keys():
            for warning in catalogue.check(wish.profiles[name].server).warnings:
                found[f"{shown(files[name])}: {warning}"] = None
    return list(found)


def _catalogues(hosts: Iterable[Mapping[str, object]], problems: Problems) -> list[Catalogue]:
    """The catalogue of each release that a host wants; `check` has complained of versions that are none."""
    default = SglangSettings.model_fields["version"].default
    catalogues = []
    for version in dict.fromkeys(str(variables.get("sglang_version", default)) for variables in hosts):
        if version in locked_versions():
            with problems.collecting():
                catalogues.append(Catalogue.load(version))
    return catalogues


def _read(source: str, overrides: Values, root: Path, problems: Problems) -> tuple[Tree, Layers]:
    """The hosts, and the folders with variables that belong to them."""
    path = Path(source)
    own = (root / "inventory", root)
    if not source or not path.exists():  # Path("") is the current directory
        return only_hosts(_named(source, overrides)), Layers(shipped=(), site=own, problems=problems)
    if path.is_dir():
        directory = path.resolve()
        files = [file for file in sorted(directory.iterdir()) if is_yaml(file) and file.is_file()]
    else:
        directory, files = path.resolve().parent, [path.resolve()]
        if path.suffix not in EXTENSIONS:
            raise Refusal(f"{source}: not an inventory; accepted are a directory, a YAML file, or hosts by name")
    tree = read_hosts(files, problems)
    if not tree.hosts:
        problems.add(f"{source}: has no hosts; name some under `hosts:` in a YAML file")
        problems.refuse()
    try:
        tree.depths  # noqa: B018
    except Refusal as refusal:
        problems.add(f"{source}: {refusal}")
        problems.refuse()
    site = (directory, directory.parent)
    shipped = tuple(folder for folder in own if folder not in site)
    return tree, Layers(shipped=shipped, site=site, problems=problems)


def _named(source: str, overrides: Values) -> list[str]:
    """The hosts in `source`. Raises Refusal for one that nothing is known of: pyinfra would deploy to nobody."""
    path = Path(source)
    if path.suffix in EXTENSIONS[1:] or ("/" in source and "@" not in source):
        beside = [shown(other) for other in path.parent.iterdir()] if path.parent.is_dir() else []
        raise Refusal(f"{source}: no such file or directory; {nearest(source, beside)}")
    names = [name for name in source.split(",") if name]
    if not names:
        raise Refusal("the inventory is empty; accepted are a directory, a YAML file, or hosts by name")
    for name in names:
        try:
            check_name(name)
        except ValueError as error:
            raise Refusal(f"{source}: {error}") from None
        if not name.startswith("@") and "ssh_hostname" not in overrides and not _resolves(name):
            raise Refusal(f"{name}: neither a directory, nor a YAML file, nor a host whose name resolves")
    return names


def _resolves(name: str) -> bool:
    """Whether a host's name has an address, by way of the user's ssh_config if it stands there."""
    config = get_ssh_config()
    options = config.lookup(name) if config else {}
    if "proxyjump" in options or "proxycommand" in options:  # resolved elsewhere
        return True
    try:
        socket.getaddrinfo(options.get("hostname", name), None)
    except OSError:
        return False
    return True
