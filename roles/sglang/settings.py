"""Variables of the role sglang."""

from typing import ClassVar

from pydantic import Field, field_validator

from roles import paths
from roles.documents import EnvironmentVariables
from roles.refusal import nearest
from roles.settings import RoleSettings
from roles.sglang.release import locked_versions


class SglangSettings(RoleSettings):
    """Which SGLang is installed, and how."""

    prefix: ClassVar[str] = "sglang_"

    version: str = "0.5.23"
    """Version of SGLang: one that `roles/sglang/locks` has a lock of."""
    uv_cache: str = Field(f"{paths.PROGRAMS}/uv-cache", pattern="^/")
    """Where uv keeps what it downloaded. On the filesystem of the releases its files are linked, else copied."""
    installer_environment: EnvironmentVariables = Field(default_factory=dict)
    """Environment of pip and uv: proxies, certificates, another package index, e.g. `HTTPS_PROXY`."""

    @field_validator("version")
    @classmethod
    def _is_locked(cls, version: str) -> str:
        if version not in locked_versions():
            raise ValueError(f"no lock of version {version}; {nearest(version, locked_versions())}")
        return version
