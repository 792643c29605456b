"""A secret as variables give it: where it is, never what it is. Pure but for `value`, run on the controller."""

import os
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import Field, ModelWrapValidatorHandler, ValidationError, model_validator

from roles.documents import Document
from roles.refusal import Refusal

ACCEPTED: Final = "accepted are {env: NAME}, {file: PATH} and {command: [PROGRAM, ARGUMENT, …]}"

# What HTTP takes after "Bearer" (RFC 6750, section 2.1). A shorter one could be guessed.
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/][A-Za-z0-9._~+/-]{15,}=*")


class Secret(Document):
    """Where the controller finds a secret when it deploys; exactly one of these."""

    env: str | None = Field(None, min_length=1)
    """Name of an environment variable of the controller."""
    file: str | None = Field(None, min_length=1)
    """File on the controller that holds nothing else; `~` is the home directory."""
    command: tuple[str, ...] | None = Field(None, min_length=1)
    """Program and arguments, run without a shell, that print the secret: `[sops, -d, key.enc]`, `[pass, gpu/key]`."""

    @model_validator(mode="wrap")
    @classmethod
    def _one_place(cls, value: object, handler: ModelWrapValidatorHandler["Secret"]) -> "Secret":
        # Pydantic would repeat the value that it refuses.
        try:
            secret = handler(value)
        except ValidationError:
            secret = None
        if secret is None or [secret.env, secret.file, secret.command].count(None) != 2:
            raise ValueError(f"must say where the secret is, not what it is; {ACCEPTED}")
        return secret

    def value(self, name: str) -> str:
        """The secret. Raises Refusal, which never holds it, for one that is not there or cannot be sent by HTTP.

        `name` is the variable that needs it.
        """
        text = _read(self, name).strip()
        if not _TOKEN.fullmatch(text):
            raise Refusal(
                f"{name}: what {self} holds is no key; accepted are 16 or more of A-Z a-z 0-9 . _ ~ + / -, "
                "the first of them no -, as `openssl rand -hex 32` makes them"
            )
        return text

    def __str__(self) -> str:
        if self.env:
            return f"the environment variable {self.env}"
        return f"the file {self.file}" if self.file else f"the output of {self.command[0]}" if self.command else ""


@cache  # one question to `pass` or `sops`, however many hosts there are
def _read(secret: Secret, name: str) -> str:
    try:
        if secret.env:
            return os.environ[secret.env]
        if secret.file:
            return Path(secret.file).expanduser().read_text(encoding="utf-8")
        return subprocess.run(secret.command or (), check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
    except KeyError:
        raise Refusal(f"{name}: {secret} is not set") from None
    except subprocess.CalledProcessError as error:
        raise Refusal(f"{name}: {(secret.command or ('',))[0]} ended with status {error.returncode}") from None
    except UnicodeDecodeError:
        raise Refusal(f"{name}: {secret} is not text") from None
    except OSError as error:
        raise Refusal(f"{name}: {secret} cannot be read: {error.strerror}") from None
