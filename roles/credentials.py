"""Secrets on a host: a file each that root alone reads, sent by standard input, so that no command line holds one."""

import shlex
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from roles.paths import CREDENTIALS
from roles.remote import run
from roles.secret import Secret

# Only builtins of the shell see a value: processes show their arguments to everyone.
_CHANGED = f"""
while read -r name value; do
    file={CREDENTIALS}/$name
    if [ -z "$value" ]; then
        [ ! -e "$file" ]
    else
        [ -e "$file" ] && [ "$(stat -c '%a %U' "$file")" = '600 root' ] && [ "$(cat "$file")" = "$value" ]
    fi || echo "$name"
done"""

_WRITE = f"""
set -e
umask 077
install -d -m 0755 {PurePosixPath(CREDENTIALS).parent}
install -d -m 0700 -o root -g root {CREDENTIALS}
cd {CREDENTIALS}
while read -r name value; do
    if [ -z "$value" ]; then
        rm -f "$name"
    else
        printf '%s\\n' "$value" > ".$name.new"
        mv ".$name.new" "$name"
    fi
done"""


@dataclass(frozen=True)
class Credential:
    """A secret that a host should have, or should no longer have."""

    name: str
    value: str | None = field(repr=False)

    @classmethod
    def of(cls, name: str, secret: Secret | None, variable: str) -> "Credential":
        """The credential that a variable asks for. Raises Refusal if the secret cannot be read."""
        return cls(name, secret.value(variable) if secret else None)


def path(name: str) -> str:
    """The file of a credential on a host."""
    return f"{CREDENTIALS}/{name}"


def exported(variables: dict[str, str]) -> str:
    """What to write before a command run by root, to give it credentials (by name) as environment variables."""
    return "".join(f'{variable}="$(cat {shlex.quote(path(name))})" ' for variable, name in variables.items())


def changed_credentials(host: Host, credentials: Sequence[Credential]) -> list[Credential]:
    """Those that are not on the host as they should be, in one round trip."""
    named = set(run(host, _CHANGED, stdin=_lines(credentials)).split())
    return [credential for credential in credentials if credential.name in named]


@operation()
def credentials_in_place(changed: Sequence[Credential]) -> Generator[FunctionCommand]:
    """Write credentials, each in one step, and remove those that are no longer declared.

    + changed: what `changed_credentials` found
    """
    if not changed:
        host.noop("all credentials are as declared")
        return
    yield FunctionCommand(_write, (changed,), {})


def _write(state: State, host: Host, changed: Sequence[Credential]) -> None:
    run(host, _WRITE, stdin=_lines(changed))


def _lines(credentials: Sequence[Credential]) -> str:
    return "".join(f"{credential.name} {credential.value or ''}\n" for credential in credentials)
