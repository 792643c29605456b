"""What weights makes true: the models that are served are whole, and those that are declared."""

import shlex
from pathlib import Path

import pytest
from pyinfra.api.host import Host as Declaration
from testinfra.host import Host

from inventory import PREVIOUS, target
from roles.paths import USER
from roles.weights import manifest
from roles.weights.layout import declared_digest, directory
from roles.weights.model import Model
from roles.weights.settings import WeightsSettings

PROGRAM = Path(manifest.__file__).read_text()


@pytest.fixture(scope="module")
def models(declaration: Declaration) -> dict[str, Model]:
    """The models of the wanted profiles by their directory."""
    wish, settings = target(declaration), WeightsSettings.of(declaration)
    wanted = wish.variables.profiles or (wish.variables.profile,)
    if wanted == (PREVIOUS,):
        pytest.skip("only the host knows which profile is meant")
    profiles = [wish.profiles[name] for name in wanted]
    names = {name for profile in profiles for name in (profile.model, profile.draft) if name}
    return {directory(settings, wish.models[name]): wish.models[name] for name in names}


def test_the_weights_are_what_their_manifest_says(
    host: Host, models: dict[str, Model], request: pytest.FixtureRequest
) -> None:
    how = ["--hashes"] if request.config.option.hashes else []
    for path in models:
        run = host.run(f"python3 -c {shlex.quote(PROGRAM)} {shlex.join(['check', *how, path])}")
        assert (run.rc, run.stderr) == (0, "")


def test_the_weights_are_those_that_are_declared(host: Host, models: dict[str, Model], tmp_path: Path) -> None:
    for path, model in models.items():
        text = host.file(f"{path}/{manifest.MANIFEST}").content_string
        (tmp_path / manifest.MANIFEST).write_text(text)
        files = manifest.read(tmp_path)
        assert files is not None
        assert declared_digest(model) in (None, manifest.digest(files))


def test_the_server_may_read_the_weights(host: Host, models: dict[str, Model]) -> None:
    for path in models:
        hidden = host.check_output(f"runuser -u {USER} -- find -L {shlex.quote(path)} ! -readable")
        assert hidden == ""
