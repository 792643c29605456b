"""An inventory of one lab host with profiles and models of a test's own."""

from pathlib import Path

import yaml

from tests.lab.conftest import ROOT, Deploying, Run, deploy
from tests.lab.places import Place


class Site:
    """A host that serves tiny-tp1 on a port of its own: all lab hosts share this machine's network."""

    def __init__(self, folder: Path, host: str, port: int) -> None:
        self.inventory = folder / "inventory"
        self._variables = folder / "group_vars"
        for path in (self.inventory, self._variables / "profiles", self._variables / "models"):
            path.mkdir(parents=True)
        lab = yaml.safe_load((ROOT / "inventory/lab.yml").read_text())
        reached = {"ansible_host": "127.0.0.1", "ansible_port": Place(host).port, "serve_port": port}
        lab["all"]["children"]["lab"]["hosts"] = {host: reached}
        (self.inventory / "hosts.yml").write_text(yaml.safe_dump(lab))

    def profile(self, name: str, **keys: object) -> None:
        """Write a profile that extends tiny-tp1."""
        text = yaml.safe_dump({"description": "A test's own.", "extends": "tiny-tp1", **keys})
        (self._variables / f"profiles/{name}.yml").write_text(text)

    def model(self, name: str) -> None:
        """Write a model that is like the tiny one, with weights of its own."""
        text = (ROOT / "group_vars/models/tiny-qwen3.yml").read_text()
        (self._variables / f"models/{name}.yml").write_text(text)

    def deploy(self, *data: str) -> Run:
        """A whole deploy; `data` is what stands after each `--data`."""
        return deploy(*_options(data), inventory=str(self.inventory))

    def deploying(self, *data: str) -> Deploying:
        """A deploy that goes on while it is followed."""
        return Deploying(*_options(data), inventory=str(self.inventory))


def _options(data: tuple[str, ...]) -> list[str]:
    return [word for pair in data for word in ("--data", pair)]
