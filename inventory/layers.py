"""group_vars and host_vars: which files give a host its variables, and which of them wins."""

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Final, Literal

from inventory.hosts import FOLDERS, Tree
from inventory.problems import Problems
from inventory.values import Values, values_from
from inventory.yamlfile import EXTENSIONS, is_meant, is_yaml, read_mapping, shown

Kind = Literal["group_vars", "host_vars"]

ACCEPTED: Final = "accepted are .yml, .yaml, .json and no ending"

NEAR: Final = 0.85
"""Similarity (difflib) from which a file's name is taken for a misspelt group or host."""


@dataclass
class Layers:
    """Folders that hold `group_vars` and `host_vars`, each overriding those before it."""

    shipped: Sequence[Path]
    """Slipway's own, when the inventory is elsewhere: below what the inventory's own files say."""
    site: Sequence[Path]
    """The inventory's folder, then the one around it: above what the inventory's own files say, as in Ansible."""
    problems: Problems
    _read: dict[Path, Values] = field(default_factory=dict)

    def values(self, tree: Tree, host: str) -> Values:
        """A host's variables, all of them: all < groups, outer to inner < host; in each, file by file."""
        groups = tree.groups_of(host)
        values: Values = {}
        for names in (["all"], groups):
            values |= self._files(self.shipped, "group_vars", names)
            for name in names:
                values |= tree.groups[name].values
            values |= self._files(self.site, "group_vars", names)
        values |= self._files(self.shipped, "host_vars", [host])
        values |= tree.hosts[host]
        return values | self._files(self.site, "host_vars", [host])

    def documents(self, folder: str) -> dict[str, Path]:
        """The files in group_vars/`folder` by their names without extension; a site's replace shipped ones."""
        found: dict[str, Path] = {}
        for layer in (*self.shipped, *self.site):
            own: dict[str, Path] = {}
            for path in _entries(layer / "group_vars" / folder):
                if not path.suffix:
                    self.problems.add(f"{shown(path)}: not read here; accepted are files that end with .yml")
                elif own.setdefault(path.stem, path) != path:
                    self._refuse_beside(path, own[path.stem])
            found |= own
        return found

    def refuse_unread(self, groups: Iterable[str], hosts: Iterable[str]) -> None:
        """Complain of what is meant to be read and is not: for its name, its ending, or its place."""
        for layer in (*self.shipped, *self.site):
            self._refuse_misspelt(layer / "group_vars", {*groups, *FOLDERS})
            self._refuse_misspelt(layer / "host_vars", set(hosts))
            self._refuse_endings(layer / "group_vars", {*groups, *FOLDERS})
            self._refuse_endings(layer / "host_vars", set(hosts))
        for layer in self.site:
            self._refuse_beside_group_vars(layer)

    def _refuse_misspelt(self, directory: Path, known: Set[str]) -> None:
        """Complain of files that no group (or host) will ever read because their name is nearly right.

        A file for a group that this inventory does not have is fine, as in Ansible: only a name that is
        close to one without a file, and does not differ in a number, is taken for a mistake.
        """
        entries = {entry.stem if entry.suffix else entry.name: entry for entry in _entries(directory)}
        without_file = {_sound(name): name for name in known if name in FOLDERS or name not in entries}
        for name in entries.keys() - known:
            for close in get_close_matches(_sound(name), without_file, n=1, cutoff=NEAR):
                if _digits(close) == _digits(name):
                    self.problems.add(
                        f"{shown(entries[name])}: no {directory.name.removesuffix('_vars')} has this name; "
                        f"did you mean {without_file[close]}?"
                    )

    def _refuse_endings(self, directory: Path, known: Set[str]) -> None:
        """Complain of files that are meant for one of `known` and end with what YAML does not.

        Another name with a dot may be that of a host, or of a group, that this inventory does not have.
        """
        for entry in _visible(directory):
            if entry.is_dir():
                files = _files_below(entry, _visible) if entry.name in known else []
            else:
                files = [entry] if entry.stem in known and entry.name not in known else []
            for file in files:
                if not is_yaml(file):
                    self.problems.add(f"{shown(file)}: not read, as its name ends with {file.suffix}; {ACCEPTED}")

    def _refuse_beside_group_vars(self, layer: Path) -> None:
        """Complain of documents beside group_vars rather than in it. Elsewhere such a folder may be anything."""
        for name in FOLDERS if (layer / "group_vars").is_dir() or layer == self.site[0] else ():
            if any(path.suffix and path.is_file() for path in _entries(layer / name)):
                right = shown(layer / "group_vars" / name)
                self.problems.add(f"{shown(layer / name)}: not read here; {name} belong in {right}")

    def _files(self, layers: Sequence[Path], kind: Kind, names: Sequence[str]) -> Values:
        values: Values = {}
        for layer in layers:
            for name in names:
                for path in self._of(layer / kind, name):
                    values |= self._values_in(path)
        return values

    def _of(self, directory: Path, name: str) -> list[Path]:
        """The files of one group or host: one file, or all files of a folder, folders in it included."""
        if name in FOLDERS:
            return []
        found = [path for path in (directory / f"{name}{extension}" for extension in EXTENSIONS) if path.exists()]
        for unread in found[1:]:
            self._refuse_beside(unread, found[0])
        if not found:
            return []
        return _files_below(found[0]) if found[0].is_dir() else found[:1]

    def _refuse_beside(self, unread: Path, read: Path) -> None:
        self.problems.add(f"{shown(unread)}: not accepted beside {shown(read)}, which is read instead of it")

    def _values_in(self, path: Path) -> Values:
        if path not in self._read:
            self._read[path] = {}
            with self.problems.collecting():
                self._read[path] = values_from(read_mapping(path), shown(path))
        return self._read[path]


def _visible(directory: Path) -> list[Path]:
    return [path for path in sorted(directory.iterdir()) if is_meant(path)] if directory.is_dir() else []


def _entries(directory: Path) -> list[Path]:
    return [path for path in _visible(directory) if is_yaml(path)]


def _files_below(folder: Path, entries: Callable[[Path], list[Path]] = _entries) -> list[Path]:
    found = []
    for path in entries(folder):
        if not path.is_dir():
            found.append(path)
        elif not path.suffix:
            found.extend(_files_below(path, entries))
    return found


def _sound(name: str) -> str:
    """A name without what is easily mistaken in it."""
    return name.lower().replace("-", "_")


def _digits(name: str) -> str:
    return "".join(character for character in name if character.isdigit())
