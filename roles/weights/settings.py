"""Variables of the role weights."""

from typing import ClassVar

from pydantic import Field

from roles import paths
from roles.documents import EnvironmentVariables
from roles.secret import Secret
from roles.settings import RoleSettings


class WeightsSettings(RoleSettings):
    """Where the weights are kept, and how they are fetched."""

    prefix: ClassVar[str] = "weights_"

    root: str = Field(f"{paths.STATE}/models", pattern=r"^/[^\n]*[^/\n]$")
    """Directory for all models, on a disk with room for them; created if it is not there."""
    hub: str = Field("https://huggingface.co", pattern=r"^https?://[^/@\s?#]+(/[^\s?#]*)?$")
    """The Hugging Face hub, or a mirror that answers as it does (what others set as `HF_ENDPOINT`)."""
    token: Secret | None = None
    """The token for the hub, for repositories that ask for one."""
    environment: EnvironmentVariables = Field(default_factory=dict)
    """Environment of the download: proxies, certificates, e.g. `HTTPS_PROXY`. Not for secrets: the host shows it."""
    remove_old: bool = False
    """Remove the weights that no profile, no unit and no running server refers to, instead of naming them."""
