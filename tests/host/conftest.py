"""Ask the hosts themselves whether what is declared is true. Read-only; aimed at the inventory by default."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

import pytest
from pyinfra.api.config import Config
from pyinfra.api.host import Host as Declaration
from pyinfra.api.state import State
from pyinfra_cli.util import parse_cli_arg  # type: ignore[import-untyped]
from testinfra.host import Host

from inventory import SiteInventory, load

_INVENTORY: Final = pytest.StashKey[SiteInventory]()

_SSH_OPTIONS: Final = {
    "ssh_hostname": "HostName",
    "ssh_port": "Port",
    "ssh_user": "User",
    "ssh_key": "IdentityFile",
    "ssh_known_hosts_file": "UserKnownHostsFile",
    "ssh_strict_host_key_checking": "StrictHostKeyChecking",
}
"""pyinfra's connection variables, and OpenSSH's names of them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--inventory", default="inventory", help="as on pyinfra's command line")
    parser.addoption("--data", action="append", default=[], metavar="NAME=VALUE", help="as on pyinfra's command line")
    parser.addoption("--hashes", action="store_true", help="read all weights and compare their hashes")


def pytest_configure(config: pytest.Config) -> None:
    given = (item.split("=", 1) for item in config.option.data)
    data = {name: parse_cli_arg(value) for name, value in given}
    inventory = load(config.option.inventory, data)
    State(inventory, Config())
    config.stash[_INVENTORY] = inventory
    if config.option.hosts is None:
        ssh_config = _ssh_config(inventory)
        config.option.hosts = ",".join(_address(host, ssh_config) for host in inventory)


def _address(host: Declaration, ssh_config: Path) -> str:
    """A host as testinfra names it."""
    sudo = "true" if host.data.get("_sudo") else "false"
    if host.name == "@local" or host.data.get("ansible_connection") == "local":
        return f"local://?sudo={sudo}"
    return f"ssh://{host.name}?ssh_config={ssh_config}&sudo={sudo}"


def _ssh_config(inventory: SiteInventory) -> Path:
    """How the inventory's hosts are reached, for OpenSSH; one connection to each serves all tests."""
    folder = Path(mkdtemp(prefix="slipway-"))
    lines = [f"Host *\n  ControlMaster auto\n  ControlPath {folder}/%C\n  ControlPersist 60"]
    for host in inventory:
        data: Mapping[str, Any] = host.data.dict()
        options = [f"  {name} {data[variable]}" for variable, name in _SSH_OPTIONS.items() if data.get(variable)]
        lines.append("\n".join([f"Host {host.name}", *options]))
    path = folder / "config"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def declaration(host: Host, request: pytest.FixtureRequest) -> Declaration:
    """The host as the inventory declares it."""
    inventory = request.config.stash[_INVENTORY]
    name = getattr(host.backend, "host", None)
    declared = inventory.get_host(name.name if name else "@local")
    assert isinstance(declared, Declaration)
    return declared
