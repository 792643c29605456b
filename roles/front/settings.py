"""Variables of the role front."""

from ipaddress import ip_address
from typing import ClassVar, Final

from pydantic import Field, ValidationInfo, field_validator

from roles.settings import RoleSettings

_PATH: Final = r"^/[A-Za-z0-9._/+@=-]+$"
"""Without what nginx would give a meaning to, in a path: it replaces variables even there."""


class FrontSettings(RoleSettings):
    """Whether and how clients reach the server by TLS, through an nginx on the same host."""

    prefix: ClassVar[str] = "front_"

    enabled: bool = False
    """Off removes what the role has made."""
    host: str = "0.0.0.0"
    """Address to listen on; `::` is every IPv6 address."""
    port: int = Field(443, gt=0, lt=65536)
    """Port to listen on."""
    name: str = Field("localhost", pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$", max_length=64)
    """Name that clients use for the host; a self-signed certificate is for this name."""
    certificate: str | None = Field(None, pattern=_PATH)
    """File on the host with the certificate and its chain; one is made and signed by itself when not given."""
    certificate_key: str | None = Field(None, pattern=_PATH)
    """File on the host with the certificate's private key."""
    body_mib: int = Field(64, gt=0)
    """MiB that a request may have; images make it large."""
    silence: int = Field(3600, gt=0)
    """Seconds without a byte from the server after which a request is given up: it may wait long for its turn."""
    rate: int = Field(50, gt=0)
    """Requests a second that one address may begin, on average; what is more is answered with 429."""
    burst: int = Field(200, gt=0)
    """Requests that one address may begin at once."""

    @field_validator("host")
    @classmethod
    def _is_address(cls, host: str) -> str:
        ip_address(host)
        return host

    @field_validator("certificate_key")
    @classmethod
    def _with_certificate(cls, key: str | None, info: ValidationInfo) -> str | None:
        if key and not info.data.get("certificate", True):
            raise ValueError("needs front_certificate as well")
        return key
