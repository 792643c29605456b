"""What base makes true of a host, as data. Pure."""

from typing import Final, NamedTuple

from roles import paths
from roles.files import File


class Directory(NamedTuple):
    """A directory as it should be, or as it is. `mode` is octal text such as "0755"."""

    path: str
    mode: str = "0755"
    user: str = "root"
    group: str = "root"


PACKAGES: Final = (
    "ca-certificates",
    "curl",
    "g++",  # SGLang, Triton and FlashInfer compile kernels when a server starts
    "numactl",  # SGLang binds each rank to its GPU's NUMA node with it
    "pciutils",
    "python3",
    "python3-dev",  # Triton's launcher includes Python.h
    "python3-venv",
)

SHELL: Final = "/usr/sbin/nologin"

DIRECTORIES: Final = (
    Directory(paths.PROGRAMS),
    Directory(paths.RELEASES),
    Directory(paths.STATE),
    Directory(paths.RECORDS),
    Directory(paths.CACHE, mode="0750", user=paths.USER, group=paths.USER),
)

# For commands run by hand as the service's user; the units carry the same limits themselves.
LIMITS: Final = File(
    "/etc/security/limits.d/90-slipway.conf",
    f"{paths.USER} - memlock unlimited\n{paths.USER} - nofile 1048576\n",
)
