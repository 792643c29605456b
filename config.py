"""Read by pyinfra before anything else: checks the controller, and lets Slipway read the inventory."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 -- the one file that an older Python gets to see
    sys.exit(f"Slipway needs Python 3.11 or later, not {sys.version.split()[0]}")

import click
from pyinfra import config
from pyinfra_cli import cli

config.REQUIRE_PYINFRA_VERSION = "~=3.10.0"

try:
    from inventory import SiteInventory, load
    from inventory.known_hosts import refuse_unknown_keys
    from inventory.reaching import connect_where_possible
    from roles.refusal import Refusal
except ModuleNotFoundError as missing:
    sys.exit(f"The Python package {missing.name} is missing; `uv sync` installs all that Slipway needs")

arguments = click.get_current_context().params
for given in arguments["data"]:
    if "=" not in given:
        sys.exit(f"--data {given}: must be name=value")


def make_inventory(source: str, override_data: dict[str, object], **options: object) -> SiteInventory:
    """What pyinfra calls to load the inventory that the command line names; its own reads Python files only
    (https://github.com/pyinfra-dev/pyinfra/issues/301)."""
    if options.get("group_data_directories"):
        sys.exit("--group-data: not accepted; Slipway reads the group_vars and host_vars of the inventory")
    try:
        inventory = load(source, override_data)
        inventory.require(arguments["limit"], arguments["exclude"])
        if "plan.py" in arguments["operations"]:
            connect_where_possible(inventory)
        else:
            for warning in inventory.warnings:  # a plan has them
                click.secho(warning, fg="yellow", err=True)
    except Refusal as refusal:
        sys.exit(str(refusal))
    return inventory


cli.make_inventory = make_inventory
refuse_unknown_keys()
