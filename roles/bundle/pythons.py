"""Which files a version of Python on a host can use. Pure."""

from functools import cache
from typing import Final

from packaging.markers import Environment
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from roles.sglang.release import MACHINE

_GLIBC: Final = 36
"""2.36: that of Debian 12, the oldest distribution that is accepted."""

_PLATFORMS: Final = [
    *(f"manylinux_2_{minor}_{MACHINE}" for minor in range(_GLIBC, 4, -1)),
    *(f"manylinux{year}_{MACHINE}" for year in ("2014", "2010", "1")),
    f"linux_{MACHINE}",
]


@cache
def tags(python: str) -> tuple[Tag, ...]:
    """The tags of wheels that suit a version of Python (`3.11`) on a host, the best first."""
    major, minor = map(int, python.split("."))
    own = cpython_tags((major, minor), platforms=_PLATFORMS)
    return (*own, *compatible_tags((major, minor), interpreter=f"cp{major}{minor}", platforms=_PLATFORMS))


@cache
def fits(name: str, python: str) -> bool:
    """Whether a file's name is that of a wheel for a version of Python."""
    try:
        return not parse_wheel_filename(name)[3].isdisjoint(tags(python))
    except InvalidWheelFilename:
        return False


def environment(python: str) -> Environment:
    """What the markers of a lock are asked about."""
    return {
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "os_name": "posix",
        "platform_machine": MACHINE,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }
