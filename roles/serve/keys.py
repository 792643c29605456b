"""The keys of a server: which are declared, and under which names a host keeps them. Pure."""

from typing import Final

from roles.secret import Secret
from roles.serve.settings import ServeSettings

API_KEY: Final = "api-key"
ADMIN_KEY: Final = "admin-key"
KEYS: Final = (API_KEY, ADMIN_KEY)


def declared_keys(settings: ServeSettings) -> dict[str, Secret | None]:
    """Each key's secret, None for a key that is not declared."""
    return {API_KEY: settings.api_key, ADMIN_KEY: settings.admin_key}


def names_of_keys(settings: ServeSettings) -> tuple[str, ...]:
    """The keys that a server is started with."""
    return tuple(name for name, secret in declared_keys(settings).items() if secret)
