"""A bundle: a directory on the controller with all that hosts need from a network. Pure."""

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from roles.bundle.pythons import fits
from roles.refusal import Refusal
from roles.weights import manifest

WHEELS: Final = "wheels"
"""For a release and its installer."""
FLASH_ATTN: Final = "flash_attn"
"""The source of flash-attn, and what builds it."""
PACKAGES: Final = "packages"
"""Packages of the distribution, as a small apt repository."""
MODELS: Final = "models"
"""A folder for each model: its manifest and its small files, among them the tokenizer."""

INDEX: Final = "Packages"
"""What names the packages of the repository, with their hashes."""

_AGAIN: Final = "copy the bundle again, or make it again"


class Bundle(NamedTuple):
    """What the manifest of a bundle says."""

    folder: Path
    distribution: str
    """What the packages are for: `debian 12`."""
    pythons: tuple[str, ...]
    """Versions of Python that there are wheels for: `3.11`."""
    locks: frozenset[str]
    """SHA-256 of each lock that the wheels are of."""
    files: manifest.Files
    """By their names in the bundle."""

    def part(self, folder: str) -> dict[str, str]:
        """The SHA-256 of each file in a folder of the bundle, by its name there."""
        inside = {name.partition("/")[2]: file for name, file in self.files.items() if name.startswith(f"{folder}/")}
        return {name: str(file["sha256"]) for name, file in inside.items()}

    def wheels(self, python: str | None) -> dict[str, str]:
        """The wheels for a version of Python; all of them where it is not known yet."""
        return {name: sha256 for name, sha256 in self.part(WHEELS).items() if python is None or fits(name, python)}

    def manifest_of(self, model: str) -> Mapping[str, Any] | None:
        """What the hub has of a model, in the form of a manifest; None if the bundle does not say it."""
        name = f"{MODELS}/{model}/{manifest.MANIFEST}"
        if name not in self.files:
            return None
        found: Mapping[str, Any] = json.loads((self.folder / name).read_text(encoding="utf-8"))
        return found

    def bytes(self, folder: str) -> int:
        """Size of a folder of the bundle."""
        return sum(file["bytes"] for name, file in self.files.items() if name.startswith(f"{folder}/"))

    def check(
        self,
        *,
        distribution: str | None = None,
        python: str | None = None,
        lock: str | None = None,
        flash_attn: Iterable[str] = (),
    ) -> None:
        """Raise Refusal if it is not for such a host or of such a lock (SHA-256), or a file in it is not right.

        `flash_attn`: the text of locks, each of one package, whose file must be there.
        """
        if distribution not in (None, self.distribution):
            raise Refusal(
                f"bundle: the packages in {self.folder} are for {self.distribution}, and the host is {distribution}; "
                "make a bundle on a machine with that"
            )
        if python is not None and python not in self.pythons:
            raise Refusal(
                f"bundle: the wheels in {self.folder} are for Python {' and '.join(self.pythons)}, and the host has "
                f"{python}; make the bundle with PYTHONS={python}"
            )
        if lock is not None and lock not in self.locks:
            raise Refusal(f"bundle: the wheels in {self.folder} are not those of the lock; make the bundle again")
        for text in flash_attn:
            if not set(self.part(FLASH_ATTN).values()) & set(re.findall(r"sha256:(\w+)", text)):
                raise Refusal(
                    f"bundle: {self.folder / FLASH_ATTN} does not have {text.split()[0]}; make the bundle again, "
                    "with this host in the inventory, or set `flash_attn: off`"
                )
        _refuse(_wrong_hashes(self.folder))


@cache  # for however many hosts
def bundle_at(path: str) -> Bundle:
    """The bundle in a directory, every file of it there with its size. Raises Refusal."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise Refusal(f"bundle: {folder} is no directory on this machine; `make bundle` makes one")
    try:
        said: Mapping[str, Any] = json.loads((folder / manifest.MANIFEST).read_text(encoding="utf-8"))
        files = manifest.read(folder)
        found = said["distribution"], tuple(said["pythons"]), frozenset(said["locks"])
    except (OSError, ValueError, LookupError, TypeError):
        files = None
    if files is None:
        raise Refusal(
            f"bundle: {folder / manifest.MANIFEST}: not there, or no manifest; run `make bundle` to its end"
        )
    _refuse(manifest.problems(folder))
    return Bundle(folder, *found, files)


@cache  # of gigabytes that do not change meanwhile
def _wrong_hashes(folder: Path) -> list[str]:
    return manifest.problems(folder, hashes=True)


def _refuse(problems: list[str]) -> None:
    if problems:
        raise Refusal("\n".join(f"bundle: {problem}; {_AGAIN}" for problem in problems))
