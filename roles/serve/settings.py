"""Variables of the role serve."""

from typing import ClassVar, Literal

from pydantic import Field

from roles.settings import RoleSettings


class ServeSettings(RoleSettings):
    """How the server is reached, and how careful a switch of profiles is."""

    prefix: ClassVar[str] = "serve_"

    state: Literal["running", "stopped"] = "running"
    """`stopped` stops the server and keeps it from starting at boot."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(30000, gt=0, lt=65536)
    """Port to listen on, unless the profile says `server: {port: …}`."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Environment variables of every server on the host; a profile's own win."""
    ready_limit: int | None = Field(None, gt=0)
    """Seconds that a server may take to get ready; computed from the size of the weights when not given."""
    stop_limit: int = Field(120, gt=0)
    """Seconds that a server may take to finish running requests before it is killed."""
    prefetch: bool = True
    """Read the new profile's weights into free memory while the old one still serves."""
    accept_tight: bool = False
    """Switch to a profile whose memory estimate is TIGHT."""
