"""One YAML file as its user wrote it, or a refusal that names file and line."""

import os
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import yaml

from roles.documents import kind
from roles.refusal import Refusal

EXTENSIONS: Final = ("", ".yml", ".yaml", ".json")
"""What the name of a YAML file may end with, in the order in which Ansible looks for them."""

_MERGE: Final = "tag:yaml.org,2002:merge"


def shown(path: Path) -> str:
    """`path` as its user would type it: relative to where they are, unless that is longer."""
    return min(os.path.relpath(path), str(path), key=len)


def is_meant(path: Path) -> bool:
    """Whether its user means it to count: neither hidden, nor an editor's backup, nor a README."""
    return not path.name.startswith((".", "README")) and not path.name.endswith("~")


def is_yaml(path: Path) -> bool:
    """Whether Ansible would read it: a known extension or none, neither hidden nor an editor's backup."""
    return path.suffix in EXTENSIONS and is_meant(path)


def read_mapping(path: Path) -> dict[str, object]:
    """The file's mapping; an empty file is an empty one.

    Raises Refusal for a file that cannot be read, that is not YAML, that gives a key twice (YAML itself
    would keep the last and say nothing), that has a block within itself, or whose top level is anything but
    a mapping with text keys.
    """
    try:
        loader = yaml.CSafeLoader(path.read_bytes())
    except OSError as error:
        raise Refusal(f"{shown(path)}: cannot be read: {error.strerror}") from None
    try:
        node = loader.get_single_node()
        if node is None:
            return {}
        duplicates = [f"{shown(path)}:{line}: {key}: given twice" for line, key in _duplicates(node)]
        if duplicates:
            raise Refusal("\n".join(duplicates))
        _refuse_endless(path, node)
        values = loader.construct_document(node)
    except yaml.YAMLError as error:
        raise Refusal(_not_yaml(path, error)) from None
    finally:
        loader.dispose()
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise Refusal(f"{shown(path)}: must be `key: value` lines, not {kind(values)}")
    for key in values:
        if not isinstance(key, str):
            raise Refusal(f"{shown(path)}: {key}: a name must be text; put it in quotes")
    return values


def _not_yaml(path: Path, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"{shown(path)}:{mark.line + 1}" if mark else shown(path)
    reason = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).splitlines()[0]
    return f"{where}: not valid YAML: {reason}"


def _duplicates(node: yaml.Node) -> Iterator[tuple[int, str]]:
    """Line and name of every key that its mapping has already had."""
    for block in _blocks(node).values():
        if isinstance(block, yaml.MappingNode):
            seen = set[str]()
            for key, _ in block.value:
                if key.tag != _MERGE and isinstance(key, yaml.ScalarNode):
                    if key.value in seen:
                        yield key.start_mark.line + 1, key.value
                    seen.add(key.value)


def _refuse_endless(path: Path, node: yaml.Node) -> None:
    """Raises Refusal for an alias within the block that it stands for: YAML allows it, and nobody could read on."""
    blocks = _blocks(node)
    try:
        TopologicalSorter({name: map(id, _within(block)) for name, block in blocks.items()}).prepare()
    except CycleError as error:
        line = min(blocks[name].start_mark.line for name in error.args[1] if name in blocks) + 1
        raise Refusal(f"{shown(path)}:{line}: contains itself, through an alias (*name)") from None


def _blocks(node: yaml.Node) -> dict[int, yaml.CollectionNode]:
    """Every mapping and list in the document by its id, each once however many aliases it has."""
    pending, found = [node], dict[int, yaml.CollectionNode]()
    while pending:
        current = pending.pop()
        if isinstance(current, yaml.CollectionNode) and id(current) not in found:
            found[id(current)] = current
            pending.extend(_within(current))
    return found


def _within(block: yaml.CollectionNode) -> list[yaml.Node]:
    if isinstance(block, yaml.MappingNode):
        return [part for pair in block.value for part in pair]
    return list(block.value)
