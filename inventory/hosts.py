"""Hosts and groups in Ansible's YAML inventory form. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

from inventory.names import expanded
from inventory.problems import Problems
from inventory.values import Values, values_from
from inventory.yamlfile import read_mapping, shown
from roles.documents import kind
from roles.refusal import Refusal, nearest

SECTIONS: Final = ("hosts", "children", "vars")

FOLDERS: Final = ("models", "profiles")
"""Folders of group_vars that hold documents, so that no group can have these names."""


@dataclass
class Group:
    """One group as the inventory files define it together."""

    hosts: dict[str, None] = field(default_factory=dict)
    children: dict[str, None] = field(default_factory=dict)
    values: Values = field(default_factory=dict)
    priority: int = 1
    """`ansible_group_priority`: among groups of the same depth the higher one overrides."""


@dataclass
class Tree:
    """All hosts, each with its own variables, and all groups. Read first, then asked; not changed in between."""

    hosts: dict[str, Values] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=lambda: {"all": Group(), "ungrouped": Group()})

    @cached_property
    def parents(self) -> dict[str, set[str]]:
        """The groups that each group is a child of; `all` is the parent of those without another."""
        parents: dict[str, set[str]] = {name: set() for name in self.groups}
        for name, group in self.groups.items():
            for child in group.children:
                parents[child].add(name)
        for name, above in parents.items():
            if name != "all" and not above:
                above.add("all")
        return parents

    @cached_property
    def depths(self) -> dict[str, int]:
        """The longest way from `all` to each group. Raises Refusal if a group contains itself."""
        depths: dict[str, int] = {}
        try:
            for name in TopologicalSorter(self.parents).static_order():
                depths[name] = 1 + max((depths[parent] for parent in self.parents[name]), default=-1)
        except CycleError as error:
            raise Refusal(f"children: goes in a circle: {' -> '.join(reversed(error.args[1]))}") from None
        return depths

    def groups_of(self, host: str) -> list[str]:
        """The groups of a host but `all`, each before those whose variables override its own."""
        own = {name for name, group in self.groups.items() if host in group.hosts} - {"all", "ungrouped"}
        found, pending = set[str](), own or {"ungrouped"}
        while pending:
            found |= pending
            pending = {parent for name in pending for parent in self.parents[name]} - found
        return sorted(found - {"all"}, key=lambda name: (self.depths[name], self.groups[name].priority, name))


def read_hosts(files: Iterable[Path], problems: Problems) -> Tree:
    """The union of inventory files, later ones overriding earlier ones variable by variable."""
    tree = Tree()
    for path in files:
        with problems.collecting():
            reader = _Reader(tree, shown(path), problems)
            for name, body in read_mapping(path).items():
                reader.group(name, body)
    return tree


def only_hosts(names: Iterable[str]) -> Tree:
    """Hosts that are named on the command line and belong to no group."""
    return Tree(hosts={name: {} for name in names})


@dataclass
class _Reader:
    tree: Tree
    source: str
    problems: Problems

    def group(self, name: object, body: object) -> None:
        if not isinstance(name, str):
            return self.problems.add(f"{self.source}: {name}: must be text; put it in quotes")
        if name in FOLDERS:
            self.problems.add(
                f"{self.source}: {name}: not accepted as a group's name, "
                f"because the folder group_vars/{name} holds {name}; choose another"
            )
        group = self.tree.groups.setdefault(name, Group())
        for section, content in self.mapping(name, body).items():
            match section:
                case "vars":
                    group.values |= self.variables(f"{name}.vars", content)
                    self.prioritise(group, f"{name}.vars")
                case "children":
                    for child, child_body in self.mapping(f"{name}.children", content).items():
                        self.group(child, child_body)
                        group.children[str(child)] = None
                case "hosts":
                    for pattern, variables in self.mapping(f"{name}.hosts", content).items():
                        self.hosts(group, f"{name}.hosts", pattern, variables)
                case _:
                    self.problems.add(
                        f"{self.source}: {name}.{section}: unknown key; {nearest(str(section), SECTIONS)}"
                    )
        return None

    def prioritise(self, group: Group, where: str) -> None:
        if given := group.values.pop("ansible_group_priority", None):
            if isinstance(given.value, int):
                group.priority = given.value
            else:
                self.problems.add(
                    f"{self.source}: {where}.ansible_group_priority: must be a whole number, not {given.value!r}"
                )

    def hosts(self, group: Group, where: str, pattern: object, variables: object) -> None:
        if not isinstance(pattern, str):
            return self.problems.add(f"{self.source}: {where}.{pattern}: must be text; put it in quotes")
        own = self.variables(f"{where}.{pattern}", variables)
        with self.problems.collecting():
            try:
                names, port = expanded(pattern)
            except ValueError as error:
                raise Refusal(f"{self.source}: {where}.{pattern}: {error}") from None
            if port:
                own = values_from({"ansible_port": port}, self.source) | own
            for name in names:
                group.hosts[name] = None
                self.tree.hosts[name] = self.tree.hosts.get(name, {}) | own
        return None

    def variables(self, where: str, content: object) -> Values:
        return values_from({str(name): value for name, value in self.mapping(where, content).items()}, self.source)

    def mapping(self, where: str, content: object) -> dict[object, object]:
        """`content`, where one name alone or nothing are accepted for a mapping as well, as in Ansible."""
        if content is None:
            return {}
        if isinstance(content, str) and where.endswith((".hosts", ".children")):
            return {content: None}
        if not isinstance(content, dict):
            self.problems.add(f"{self.source}: {where}: must be `name:` lines, not {kind(content)}")
            return {}
        return content
