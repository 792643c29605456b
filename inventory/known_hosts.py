"""A host that shows an unknown SSH key is refused, and the user is told how to make it known."""

import hashlib
from base64 import b64encode

from paramiko import MissingHostKeyPolicy, PKey, SSHException
from paramiko import SSHClient as ParamikoClient
from pyinfra.connectors.sshuserclient import client as pyinfra_client


class UnknownKeyRefused(MissingHostKeyPolicy):
    """What `ssh_strict_host_key_checking: "yes"` means."""

    def missing_host_key(self, client: ParamikoClient, hostname: str, key: PKey) -> None:
        """Raise SSHException, which pyinfra turns into the host's one line of output."""
        name, _, port = hostname.removeprefix("[").partition("]:")  # paramiko writes a port as in known_hosts
        fingerprint = b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")
        known_hosts = getattr(client, "_host_keys_filename", None) or "~/.ssh/known_hosts"
        scan = f"ssh-keyscan {f'-p {port} ' if port else ''}{name}"
        raise SSHException(
            f"its key ({key.get_name()}, SHA256:{fingerprint}) is not in {known_hosts}; compare it with what "
            f"`ssh-keygen -lf` says of the host's own /etc/ssh/ssh_host_*_key.pub, then `{scan} >> {known_hosts}`"
        )


def refuse_unknown_keys() -> None:
    """Let pyinfra's strict checking say what to do; its own writes two lines that do not."""
    pyinfra_client.StrictPolicy = UnknownKeyRefused  # type: ignore[misc, assignment]
