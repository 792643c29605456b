"""Run commands on a host from inside an operation, with the privileges that its variables ask for."""

import logging
from typing import Any

from paramiko import SSHException
from pyinfra.api.arguments import CONNECTOR_ARGUMENT_KEYS, pop_global_arguments
from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.host import Host
from pyinfra.connectors.util import CommandOutput, clear_askpass_cache

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # it raises too; its tracebacks would be printed


class RemoteError(RuntimeError):
    """A command that had to succeed did not; the text is what it printed."""


class ConnectionLost(RemoteError):  # noqa: N818 -- it is what happened
    """The host cannot be reached any more. What it was told to do may have been done."""


def attempt(
    host: Host, command: str | StringCommand, *, show: bool = False, stdin: str | None = None
) -> tuple[bool, str]:
    """Run `command`; return whether it exited with 0, and its stdout.

    `show` prints the lines as they come; `stdin` is never printed, whatever the verbosity.

    pyinfra's `run_shell_command` takes no privileges from the host's variables
    (https://github.com/pyinfra-dev/pyinfra/issues/1135), so they are resolved here.
    """
    arguments, _ = pop_global_arguments(host.state, host, {})
    privileges: dict[str, Any] = {key: arguments[key] for key in CONNECTOR_ARGUMENT_KEYS}  # type: ignore[literal-required]
    try:
        done, output = host.run_shell_command(
            command if isinstance(command, StringCommand) else StringCommand(command),
            print_output=show or host.state.print_output,
            print_input=host.state.print_input,
            **{**privileges, "_stdin": stdin},
        )
    except (OSError, EOFError, SSHException) as error:
        raise ConnectionLost(f"the connection was lost: {error}") from None
    if not done and not _connected(host):
        raise ConnectionLost("the connection was lost")
    return done, output.stdout if done else _all_of(output)


def run(host: Host, command: str | StringCommand, *, show: bool = False, stdin: str | None = None) -> str:
    """Run a command that must succeed and return its stdout. Raises RemoteError with its output."""
    done, output = attempt(host, command, show=show, stdin=stdin)
    if not done:
        raise RemoteError(output or "no output")
    return output


def _all_of(output: CommandOutput) -> str:
    return "\n".join(line.line for line in output)


def _connected(host: Host) -> bool:
    """Whether a connection by SSH still stands; a command that it cut off just seems to have failed."""
    client = getattr(host.connector, "client", None)
    transport = client.get_transport() if client else None
    return client is None or (transport is not None and transport.is_active())


def reconnect(host: Host) -> None:
    """Connect again after a loss. Raises ConnectionLost if the host cannot be reached."""
    clear_askpass_cache(host)  # its file may be gone
    host.connector.disconnect()
    try:
        host.connector.connect()
    except (ConnectError, OSError) as error:
        raise ConnectionLost(str(error)) from None
