"""The locks hold one consistent set, with hashes, for every Python that is accepted."""

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from roles.sglang.release import PYTHONS, Release, Uv, locked_versions

LOCKS = Path("roles/sglang/locks")


def pins(lock: str, python: str) -> dict[str, str]:
    """Name and version of what a lock installs on a Python version on Linux x86_64."""
    environment = {
        "python_full_version": f"{python}.2",
        "python_version": python,
        "sys_platform": "linux",
        "platform_machine": "x86_64",
        "implementation_name": "cpython",
    }
    requirements = [Requirement(line.rstrip(" \\")) for line in lock.splitlines() if line[:1].isalnum()]
    return {
        wanted.name: str(wanted.specifier).removeprefix("==")
        for wanted in requirements
        if wanted.marker is None or wanted.marker.evaluate(environment)
    }


@pytest.fixture(params=PYTHONS)
def installed(request: pytest.FixtureRequest) -> dict[str, str]:
    return pins(Release.of("0.5.23").lock, request.param)


def test_the_cuda_set_is_of_the_minor_version_that_torch_was_built_for(installed: dict[str, str]) -> None:
    assert installed["cuda-toolkit"].startswith("13.0.")
    for part in ("nvcc", "crt", "runtime", "cccl", "nvrtc"):
        assert installed[f"nvidia-cuda-{part}"].startswith("13.0."), part
    for part in ("nvvm", "nvjitlink"):
        assert installed[f"nvidia-{part}"].startswith("13.0."), part


def test_what_sglang_asserts_when_it_starts_is_locked(installed: dict[str, str]) -> None:
    """srt/entrypoints/engine.py: flashinfer_python 0.7.2, sglang-kernel 0.4.9 or later."""
    assert installed["sglang"] == "0.5.23"
    assert installed["flashinfer-python"] == "0.7.2"
    assert installed["sglang-kernel"] == "0.4.10"
    assert "ninja" in installed


@pytest.mark.parametrize("name", [*locked_versions(), "uv"])
def test_every_package_of_a_lock_has_hashes_and_no_lock_names_an_index(name: str) -> None:
    lock = (LOCKS / f"{name}.txt").read_text()
    packages = [line for line in lock.splitlines() if line[:1].isalnum()]
    assert packages
    assert all(line.endswith("\\") for line in packages)
    assert "://" not in lock


@pytest.mark.parametrize("name", [*locked_versions(), "uv"])
def test_a_lock_holds_what_was_asked_for(name: str) -> None:
    wanted = [line.partition("#")[0].strip() for line in (LOCKS / f"{name}.in").read_text().splitlines()]
    installed = pins((LOCKS / f"{name}.txt").read_text(), "3.12")
    for requirement in map(Requirement, filter(None, wanted)):
        assert requirement.specifier.contains(installed[requirement.name]), requirement


def test_uv_is_pinned() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", Uv.locked().version)
    assert Uv.locked().directory.endswith(Uv.locked().version)
