"""What is deployed in a benchmark: the same hosts and the same wishes, in the files of both tools."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.wanted import wanted
from tests.lab import base
from tests.lab.places import KEY

PROFILE: Final = "measured"
UNIT: Final = f"sglang-{PROFILE}.service"
PORT: Final = 30015
"""Of the server; lab hosts share a network."""


@dataclass(frozen=True)
class Site:
    """A folder with an inventory for each tool."""

    folder: Path

    @property
    def inventory(self) -> Path:
        return self.folder / "inventory"

    @property
    def ansible(self) -> Path:
        return self.folder / "ansible.json"


def make_site(
    folder: Path, ports: Iterable[int], known_hosts: Path, *, requests: int = 8, serve_port: int = PORT
) -> Site:
    """Hosts that are reached by these ports of 127.0.0.1; `requests`: the one value that a benchmark changes."""
    site = Site(folder)
    reached = {
        f"host{port}": {
            "ansible_host": "127.0.0.1",
            "ansible_port": port,
            "ansible_user": base.USER,
            "ansible_ssh_private_key_file": str(KEY),
        }
        for port in ports
    }
    own = {
        "profile": PROFILE,
        "serve_port": serve_port,
        "ssh_known_hosts_file": str(known_hosts),
    }
    profile = {
        "description": "The tiny model, with a value that a benchmark changes.",
        "extends": "tiny-tp1",
        "server": {"max_running_requests": requests},
    }
    _write(site.inventory / "hosts.yml", {"all": {"children": {"lab": {"hosts": reached, "vars": own}}}})
    _write(folder / f"group_vars/profiles/{PROFILE}.yml", profile)
    common = {"ansible_ssh_common_args": f"-o UserKnownHostsFile={known_hosts}"}
    _write(site.ansible, {"all": {"hosts": reached, "vars": {**common, "wanted": wanted(site.inventory, {})}}})
    return site


def _write(path: Path, value: object) -> None:
    """YAML, of which JSON is a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1))
