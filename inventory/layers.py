"""group_vars and host_vars: which files give a host its variables, and which of them wins."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Final, Literal

from inventory.hosts import FOLDERS, Tree
from inventory.problems import Problems
from inventory.values import Values, values_from
from inventory.yamlfile import EXTENSIONS, is_yaml, read_mapping, shown

Kind = Literal["group_vars", "host_vars"]

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
                if path.suffix and own.setdefault(path.stem, path) != path:
                    self._refuse_beside(path, own[path.stem])
            found |= own
        return found

    def refuse_misspelt(self, kind: Kind, names: Iterable[str]) -> None:
        """Complain of files that no group (or host) will ever read because their name is nearly right.

        A file for a group that this inventory does not have is fine, as in Ansible: only a name that is
        close to one without a file, and does not differ in a number, is taken for a mistake.
        """
        known = set(names)
        for layer in (*self.shipped, *self.site):
            directory = layer / kind
            entries = {entry.stem if entry.suffix else entry.name: entry for entry in _entries(directory)}
            without_file = {_sound(name): name for name in known - entries.keys()}
            for name in entries.keys() - known - set(FOLDERS):
                for close in get_close_matches(_sound(name), without_file, n=1, cutoff=NEAR):
                    if _digits(close) == _digits(name):
                        self.problems.add(
                            f"{shown(entries[name])}: no {kind.removesuffix('_vars')} has this name; "
                            f"did you mean {without_file[close]}?"
                        )

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


def _entries(directory: Path) -> list[Path]:
    return [path for path in sorted(directory.iterdir()) if is_yaml(path)] if directory.is_dir() else []


def _files_below(folder: Path) -> list[Path]:
    found = []
    for path in _entries(folder):
        if not path.is_dir():
            found.append(path)
        elif not path.suffix:
            found.extend(_files_below(path))
    return found


def _sound(name: str) -> str:
    """A name without what is easily mistaken in it."""
    return name.lower().replace("-", "_")


def _digits(name: str) -> str:
    return "".join(character for character in name if character.isdigit())
