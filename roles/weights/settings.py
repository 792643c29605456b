"""Variables of the role weights."""

from typing import ClassVar

from pydantic import Field

from roles import paths
from roles.settings import RoleSettings


class WeightsSettings(RoleSettings):
    """Where the weights are kept."""

    prefix: ClassVar[str] = "weights_"

    root: str = Field(f"{paths.STATE}/models", pattern=r"^/[^\n]*[^/\n]$")
    """Directory for all models, on a disk with room for them; created if it is not there."""
