"""Variables of the role base."""

from typing import Annotated, ClassVar

from pydantic import StringConstraints

from roles.settings import RoleSettings


class BaseSettings(RoleSettings):
    """What every host needs before anything else."""

    prefix: ClassVar[str] = "base_"

    packages: tuple[Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.+-]*(:[a-z0-9]+)?$")], ...] = ()
    """Packages of the distribution to install besides those that Slipway needs itself."""
