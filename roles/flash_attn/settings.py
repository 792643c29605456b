"""Variables of the role flash_attn."""

from typing import ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from roles.documents import EnvironmentVariables
from roles.flash_attn.wheels import locked_versions
from roles.refusal import nearest
from roles.settings import RoleSettings


class FlashAttnSettings(RoleSettings):
    """Whether a release gets flash-attn 2, and where that comes from."""

    prefix: ClassVar[str] = "flash_"  # so that the main variable is `flash_attn`, and the others `flash_attn_…`

    attn: Literal["build", "wheel", "off"] | None = None
    """`build` compiles the locked source on the host, `wheel` takes a finished one, `off` removes what Slipway had
    added. Unset: `build` on a host with GPUs, `off` on one without."""
    attn_version: str = "2.8.3.post2"
    """Version that `build` compiles: one that `roles/flash_attn/locks` has a lock of."""
    attn_wheel: str = Field(default="", validate_default=True, pattern=r"^((https?|file)://\S+\.whl|/\S+\.whl)?$")
    """With `flash_attn: wheel`: its URL, or its path on the host."""
    attn_wheel_sha256: str = Field(default="", validate_default=True, pattern=r"^([0-9a-f]{64})?$")
    """With `flash_attn: wheel`: the file's SHA-256."""
    attn_environment: EnvironmentVariables = Field(default_factory=dict)
    """Environment variables of the build, over those that Slipway sets, e.g. {MAX_JOBS: "8"}."""

    @field_validator("attn", mode="before")
    @classmethod
    def _off_is_a_word(cls, value: object) -> object:
        return "off" if value is False else value  # YAML reads a bare `off` as false

    @field_validator("attn_version")
    @classmethod
    def _is_locked(cls, version: str) -> str:
        if version not in locked_versions():
            raise ValueError(f"no lock of version {version}; {nearest(version, locked_versions())}")
        return version

    @field_validator("attn_wheel", "attn_wheel_sha256")
    @classmethod
    def _is_given(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("attn") == "wheel" and not value:
            raise ValueError("required with flash_attn: wheel")
        return value
