"""How a host is reached: Ansible's variables for it, and pyinfra's."""

from typing import Final, Literal

from pydantic import Field, StrictBool
from pyinfra.api.arguments import AllArguments
from pyinfra.connectors import docker, fake, ssh

from roles.documents import Document

ALIASES: Final = {
    "ansible_host": "ssh_hostname",
    "ansible_ssh_host": "ssh_hostname",
    "ansible_port": "ssh_port",
    "ansible_ssh_port": "ssh_port",
    "ansible_user": "ssh_user",
    "ansible_ssh_user": "ssh_user",
    "ansible_password": "ssh_password",
    "ansible_ssh_pass": "ssh_password",
    "ansible_private_key_file": "ssh_key",
    "ansible_ssh_private_key_file": "ssh_key",
    "ansible_become": "_sudo",
    "ansible_become_user": "_sudo_user",
    "ansible_become_pass": "_sudo_password",
    "ansible_become_password": "_sudo_password",
}
"""Ansible's name of a connection variable: pyinfra's name of the same."""


class Connection(Document):
    """The connection variables that most inventories need; pyinfra's other `ssh_…` names work as well."""

    ssh_hostname: str | None = None
    """Address or name to connect to, if it is not the host's own name; Ansible's `ansible_host`."""
    ssh_port: int | None = Field(None, gt=0, lt=65536)
    """Ansible's `ansible_port`."""
    ssh_user: str | None = None
    """Ansible's `ansible_user`."""
    ssh_key: str | None = None
    """File of the private key; Ansible's `ansible_ssh_private_key_file`."""
    ssh_password: str | None = None
    """Ansible's `ansible_password`; a key is the better choice."""
    ssh_strict_host_key_checking: Literal["yes", "accept-new", "ask", "no"] = "yes"
    """`yes` refuses a host whose key is not in the known_hosts file; `accept-new` adds it there unseen."""
    ssh_known_hosts_file: str | None = None
    """File of the known keys, if not `~/.ssh/known_hosts`."""
    ansible_connection: Literal["ssh", "smart", "paramiko", "local"] = "ssh"
    """`local`: this machine itself, without SSH, like the host `@local`."""
    ansible_become_method: Literal["sudo"] = "sudo"
    """How other rights are gained; of Ansible's methods only sudo."""
    ansible_python_interpreter: str | None = None
    """Accepted and not used: nothing on the host runs Python for Slipway."""


class Privileges(Document):
    """How Slipway becomes root where it does not log in as root: pyinfra's names, beside Ansible's."""

    sudo: StrictBool = False
    """Ansible's `ansible_become`."""
    sudo_user: str | None = None
    """Ansible's `ansible_become_user`."""
    sudo_password: str | None = None
    """Ansible's `ansible_become_password`; sudo that asks for none is the better choice."""


PYINFRA: Final = frozenset(
    name
    for names in (AllArguments, ssh.ConnectorData, docker.ConnectorData, fake.FakeConnectorData)
    for name in names.__annotations__
)
"""Names that pyinfra itself understands: global arguments such as `_sudo`, and what its connectors need."""
