"""Variables of the role base."""

from typing import ClassVar

from roles.settings import RoleSettings


class BaseSettings(RoleSettings):
    """What every host needs before anything else."""

    prefix: ClassVar[str] = "base_"

    packages: tuple[str, ...] = ()
    """Packages of the distribution to install besides those that Slipway needs itself."""
