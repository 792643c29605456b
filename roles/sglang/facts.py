"""What sglang reads from a host, in one round trip."""

import shlex
from typing import NamedTuple

from pyinfra.api.host import Host

from roles import paths
from roles.observation import observe
from roles.sglang.builder import FIND_SGLANG, MARKER
from roles.sglang.release import Release, Uv


class SglangFacts(NamedTuple):
    """The host as sglang found it."""

    machine: str
    python: str | None
    """Version of python3; None if there is none."""
    free: int
    """Bytes on the filesystem of the releases, with those that a build under way, or cut off, has of them."""
    uv: bool
    """Whether uv of the locked version runs."""
    release: bool
    """Whether the release is whole."""


def sglang_facts(host: Host, release: Release, uv: Uv) -> SglangFacts:
    """Ask for a release and for what is needed to build it."""
    seen = observe(
        host,
        {
            "machine": "uname -m",
            "python": "python3 -c 'import platform; print(platform.python_version())'",
            "free": _free_program(release),
            "uv": f"{uv.directory}/bin/uv --version",
            "release": _release_program(release),
        },
    )
    return SglangFacts(
        machine=seen["machine"][0],
        python=seen["python"][0] if seen["python"] else None,
        free=int(seen["free"][0]),
        uv=bool(seen["uv"]) and seen["uv"][0].split()[1] == uv.version,
        release=seen["release"] == ["complete"],
    )


def _free_program(release: Release) -> str:
    return f"""
folder={paths.RELEASES}
while [ ! -d "$folder" ]; do folder=$(dirname "$folder"); done
free=$(df --output=avail --block-size=1 "$folder" | tail -n 1)
begun=$(du --summarize --block-size=1 {shlex.quote(release.aside)} | cut -f 1)
echo $((free + ${{begun:-0}}))"""


def _release_program(release: Release) -> str:
    """Says `complete` under the same conditions as the builder's `is_complete`, in milliseconds."""
    return f"""
cd {shlex.quote(release.directory)} && {{
    read -r lock && [ "$lock" = {release.sha256} ] && bin/python -c {shlex.quote(FIND_SGLANG)} || exit
    while read -r name; do [ -e "$name" ] || exit; done
    echo complete
}} < {MARKER}"""
