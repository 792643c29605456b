"""Hosts, groups and merged variables are those that ansible-inventory makes of the same files."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from inventory.hosts import Tree, read_hosts
from inventory.layers import Layers
from inventory.problems import Problems
from inventory.values import Value
from inventory.yamlfile import is_yaml

GENERATED = 25

BY_HAND = {
    "inventory/10-hosts.yml": """
        all:
          hosts: {bastion: {ansible_host: 192.0.2.1, ansible_port: 2222, ansible_user: admin, color: host}}
          vars: {region: eu, color: all}
          children:
            gpu: {hosts: {"gpu[01:03].example": {rack: 7}, "node-[a:c]:2200": }, vars: {color: gpu}}
            site: {children: {gpu: , idle: {vars: {color: idle}}}, vars: {color: site, shared: inline}}
    """,
    "inventory/20-more.yaml": """
        alpha: {hosts: gpu02.example, vars: {tie: alpha}}
        zulu: {hosts: {gpu02.example: {rack: 8}}, vars: {tie: zulu}}
        heavy: {hosts: {gpu02.example: }, vars: {ansible_group_priority: 5, tie: heavy}}
        deep: {vars: {level: 1}, children: {deeper: {children: deepest}}}
        deepest: {hosts: {"gpu[1:5:2]-x": }, vars: {level: 3}}
        ungrouped: {hosts: {loner: , gpu01.example: }}
    """,
    "inventory/30-more.json": '{"all": {"vars": {"region": "us"}}, "gpu": {"vars": {"json": true}}}',
    "inventory/group_vars/all.yml": "inside: all\nshared: inside",
    "inventory/group_vars/site/b.yml": "shared: inside b\nonly: b",
    "inventory/group_vars/site/a": "shared: inside a\nfolder: a",
    "inventory/group_vars/site/nested/c.yaml": "nested: c",
    "inventory/group_vars/site/.hidden.yml": "hidden: true",
    "inventory/group_vars/site/backup.yml~": "hidden: true",
    "inventory/host_vars/bastion.json": '{"color": "host file", "from": "json"}',
    "inventory/host_vars/gpu01.example": "rack: 9",
    "group_vars/all": "inside: beside",
    "group_vars/alpha.yaml": "tie: alpha file",
    "group_vars/deep.yml": "level: 1 file",
    "group_vars/nobody.yml": "unused: true",
    "host_vars/gpu02.example/x.yml": "rack: 10",
}


def generated(seed: int) -> dict[str, Any]:
    """A random inventory whose names all begin with its number, so that many can be asked about at once."""
    rng = random.Random(seed)
    names = [f"t{seed}_{letter}" for letter in rng.sample("abcdefgh", rng.randint(2, 6))]
    groups: dict[str, Any] = {name: {} for name in names}
    for index, name in enumerate(names):
        groups[name]["hosts"] = {
            f"t{seed}-host{n}": {f"t{seed}_v{rng.randint(0, 3)}": f"{name} host"} if rng.random() < 0.3 else None
            for n in rng.sample(range(5), rng.randint(0, 3))
        }
        groups[name]["vars"] = {f"t{seed}_v{n}": name for n in rng.sample(range(4), rng.randint(0, 3))}
        if rng.random() < 0.3:
            groups[name]["vars"]["ansible_group_priority"] = rng.randint(1, 20)
        later = names[index + 1 :]  # only later ones, so that there is no circle
        groups[name]["children"] = dict.fromkeys(rng.sample(later, rng.randint(0, min(2, len(later)))))
    everything = {"hosts": {f"t{seed}-host{rng.randint(0, 9)}": None}, "vars": {f"t{seed}_v0": "all"}}
    return {"all": everything, **groups}


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def generated_files() -> dict[str, str]:
    files = {}
    for seed in range(GENERATED):
        tree = generated(seed)
        files[f"inventory/t{seed}.yml"] = yaml.safe_dump(tree, sort_keys=False)
        rng = random.Random(seed)
        for name in rng.sample(sorted(tree), 2):
            where = rng.choice(["", "inventory/"])
            files[f"{where}group_vars/{name}.yml"] = yaml.safe_dump({f"t{seed}_v{rng.randint(0, 3)}": f"{name} file"})
    for name in ("inventory/group_vars/all.yml", "group_vars/all.yml"):  # BY_HAND has its own
        files.pop(name, None)
    return files


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("site")
    files = generated_files()
    write(root, files | {name: text.replace("\n        ", "\n") for name, text in BY_HAND.items()})
    return root


@pytest.fixture(scope="module")
def ansible(site: Path) -> dict[str, Any]:
    """What ansible-inventory says, playbooks being beside the inventory."""
    program = Path(sys.executable).with_name("ansible-inventory")
    command = [str(program), "-i", str(site / "inventory"), "--playbook-dir", str(site), "--list"]
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "ANSIBLE_LOCALHOST_WARNING": "0"}
    result = subprocess.run(command, cwd=site, env=environment, capture_output=True, text=True, check=True)
    said: dict[str, Any] = json.loads(result.stdout)
    return said


@pytest.fixture(scope="module")
def tree(site: Path) -> Tree:
    problems = Problems()
    files = [path for path in sorted((site / "inventory").iterdir()) if path.is_file() and is_yaml(path)]
    found = read_hosts(files, problems)
    problems.refuse()
    return found


def test_the_same_hosts(ansible: dict[str, Any], tree: Tree) -> None:
    said = set(ansible["_meta"]["hostvars"])
    for group in ansible.values():
        said |= set(group.get("hosts", []))
    assert set(tree.hosts) == said
    assert len(said) > GENERATED


def test_the_same_members_of_every_group(ansible: dict[str, Any], tree: Tree) -> None:
    def members(group: str) -> set[str]:
        body = ansible.get(group, {})
        return set(body.get("hosts", [])).union(*map(members, body.get("children", [])))

    for group in tree.groups:
        if group != "all":
            assert {host for host in tree.hosts if group in tree.groups_of(host)} == members(group), group


def test_the_same_variables_for_every_host(ansible: dict[str, Any], site: Path, tree: Tree) -> None:
    problems = Problems()
    layers = Layers(shipped=(), site=(site / "inventory", site), problems=problems)
    for host in tree.hosts:
        merged = layers.values(tree, host)
        assert {value.written: value.value for value in merged.values()} == ansible["_meta"]["hostvars"].get(host, {})
    problems.refuse()


def test_connection_variables_under_pyinfras_names(site: Path, tree: Tree) -> None:
    own = tree.hosts["bastion"]
    assert own["ssh_hostname"] == Value("192.0.2.1", own["ssh_hostname"].source, "ansible_host")
    assert (own["ssh_port"].value, own["ssh_user"].value) == (2222, "admin")
