"""Which versions of driver, toolkit and torch go together. Pure."""

from typing import Final

MINIMUM_DRIVER: Final = {"12": "525.60.13", "13": "580.65.06"}
"""CUDA major version -> the oldest Linux driver (NVIDIA, CUDA Toolkit release notes, table 2)."""

TOOLKITS: Final = ("13.0.3",)
"""Versions of the toolkit that a release's lock holds, by its `cuda-toolkit` line."""


def major(version: str) -> str:
    """`13.0.3` -> `13`."""
    return version.split(".", 1)[0]


def at_least(version: str, minimum: str) -> bool:
    """Whether `580.82.07` is no older than `580.65.06`."""
    return _numbers(version) >= _numbers(minimum)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]
