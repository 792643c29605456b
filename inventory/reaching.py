"""Go on without the hosts that cannot be reached: a plan can be made before a host exists."""

from functools import partial

from pyinfra.api.exceptions import ConnectError
from pyinfra.api.host import Host

from inventory.site import SiteInventory


def connect_where_possible(inventory: SiteInventory) -> None:
    """Let pyinfra take hosts that do not answer for connected; `inventory.unreached` then says why they did not.

    pyinfra would leave them out, and end the run if none is left. Whoever calls this asks them nothing.
    """
    for host in inventory:
        host.connect = partial(_connect, inventory, host)  # type: ignore[method-assign]


def _connect(inventory: SiteInventory, host: Host, **_: object) -> None:
    try:
        Host.connect(host, show_errors=False, raise_exceptions=True)
    except ConnectError as error:
        inventory.unreached[host.name] = str(error)
        host.connected = True
