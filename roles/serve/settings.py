"""Variables of the role serve."""

from ipaddress import ip_address
from typing import ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from roles.documents import EnvironmentVariables
from roles.secret import Secret
from roles.serve.profile import unreserved
from roles.settings import RoleSettings


class ServeSettings(RoleSettings):
    """How the server is reached, and how careful a switch of profiles is."""

    prefix: ClassVar[str] = "serve_"

    state: Literal["running", "stopped"] = "running"
    """`stopped` stops the server and keeps it from starting at boot."""
    api_key: Secret | None = None
    """The key that clients must send; none: whoever reaches the port is served."""
    admin_key: Secret | None = None
    """The key for SGLang's own administration, such as flushing its cache, in place of `serve_api_key`."""
    open: bool = False
    """Listen on an address that others reach although there is no `serve_api_key`."""
    host: str = Field("127.0.0.1", min_length=1)
    """Address to listen on. One that others reach needs `serve_api_key`, or `serve_open: true`."""
    port: int = Field(30000, gt=0, lt=65536)
    """Port to listen on, unless the profile says `server: {port: …}`."""
    environment: EnvironmentVariables = Field(default_factory=dict)
    """Environment variables of every server on the host; a profile's own win."""
    ready_limit: int | None = Field(None, gt=0)
    """Seconds that a server may take to get ready; by default from the weights' size and the disk's rate."""
    stop_limit: int = Field(120, gt=0)
    """Seconds that a server may take to finish running requests before it is killed."""
    prefetch: bool = True
    """Read the new profile's weights into free memory while the old one still serves."""
    accept_tight: bool = False
    """Switch to a profile whose memory estimate is TIGHT."""

    _environment = field_validator("environment")(unreserved)

    @field_validator("admin_key")
    @classmethod
    def _not_alone(cls, key: Secret | None, info: ValidationInfo) -> Secret | None:
        if key and info.data.get("api_key", "invalid") is None:
            # /server_info is for everyone then, and shows it.
            raise ValueError("needs serve_api_key as well, or SGLang would show it to everyone who asks")
        return key

    @field_validator("host")
    @classmethod
    def _guarded(cls, host: str, info: ValidationInfo) -> str:
        if info.data.get("api_key", "invalid") is None and not info.data.get("open", True) and not _is_local(host):
            raise ValueError(
                f"{host} lets others reach the server without a key; give serve_api_key, or say `serve_open: true`"
            )
        return host


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
