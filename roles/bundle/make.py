"""`make bundle`: python -m roles.bundle.make FOLDER [--inventory PATH] [--python VERSION …]

It can be killed at any moment and run again: what is there and right is not fetched again, and the manifest that
makes a folder a bundle is written last.
"""

import json
import platform
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from pyinfra.api.config import Config
from pyinfra.api.exceptions import DeployError
from pyinfra.api.state import State

from inventory import load
from roles.bundle import models, packages
from roles.bundle.bundle import FLASH_ATTN, MODELS, PACKAGES, WHEELS
from roles.bundle.downloads import Download, bring
from roles.bundle.needs import Needs, needs_of
from roles.bundle.wheels import files_of
from roles.cuda.distributions import distribution
from roles.flash_attn.wheels import lock_of
from roles.refusal import Refusal
from roles.sglang.release import PYTHONS, Uv
from roles.weights import manifest
from roles.weights.settings import WeightsSettings


def main() -> None:
    parser = ArgumentParser(prog="make bundle", description="Put all that hosts need from a network into FOLDER.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--inventory", default="inventory", help="the hosts that the bundle is for")
    parser.add_argument("--python", action="append", choices=PYTHONS, help="of the hosts")
    arguments = parser.parse_args()
    try:
        make(arguments.folder, arguments.inventory, arguments.python or [])
    except (Refusal, DeployError) as refusal:
        sys.exit(str(refusal))


def make(folder: Path, inventory: str, pythons: Sequence[str]) -> None:
    """Make the bundle, or bring it up to date. Raises Refusal."""
    hosts = load(inventory)
    State(hosts, Config())
    system = distribution(platform.freedesktop_os_release())
    needs = needs_of(hosts, system)
    (folder / manifest.MANIFEST).unlink(missing_ok=True)
    pins = [f"Package: /./\nPin: version {branch}.*\nPin-Priority: 1000\n" for branch in needs.driver_branches]
    packages.collect(sorted(needs.packages), folder / PACKAGES, pins="\n".join(pins))
    pythons = pythons or [packages.python_of(folder / PACKAGES)]
    bring(_wheels(needs, pythons), folder / WHEELS)
    bring(_flash_attn(needs, pythons), folder / FLASH_ATTN)
    settings = WeightsSettings.of(next(iter(hosts)))
    models.collect(needs.models.values(), settings, folder / MODELS)
    _describe(folder, f"{system.id} {system.version}", pythons, needs)
    print(f"{folder} is a whole bundle: `bundle: {folder.absolute()}`")


def _wheels(needs: Needs, pythons: Sequence[str]) -> list[Download]:
    locks = [Uv.locked().lock, *(release.lock for release in needs.releases)]
    return [file for lock in locks for python in pythons for file in files_of(lock, python)]


def _flash_attn(needs: Needs, pythons: Sequence[str]) -> list[Download]:
    locks = map(lock_of, sorted(needs.flash_attn))
    return [file for lock in locks for python in pythons for file in files_of(lock, python)]


def _describe(folder: Path, system: str, pythons: Sequence[str], needs: Needs) -> None:
    files = {str(path.relative_to(folder)): path for path in sorted(folder.glob("*/**/*")) if path.is_file()}
    described = {
        "distribution": system,
        "pythons": sorted(pythons),
        "locks": sorted(release.sha256 for release in needs.releases),
        "files": {
            name: {"bytes": path.stat().st_size, "sha256": manifest.sha256(path)} for name, path in files.items()
        },
    }
    new = folder / f"{manifest.MANIFEST}.new"
    new.write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    new.replace(folder / manifest.MANIFEST)


if __name__ == "__main__":
    main()
