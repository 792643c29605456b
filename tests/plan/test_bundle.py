"""Roles on a host that is deployed from a bundle."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyinfra.api.exceptions import DeployError

from inventory import Site, SiteInventory
from roles.base.layout import PACKAGES
from roles.base.tasks import base
from roles.bundle.bundle import bundle_at
from roles.bundle.needs import needs_of
from roles.bundle.operations import APT_CONF, apt_conf
from roles.cuda.distributions import Distribution
from roles.flash_attn.tasks import flash_attn
from roles.flash_attn.wheels import lock_of
from roles.serve.profile import Profile
from roles.sglang.release import BYTES_NEEDED, Release
from roles.sglang.tasks import sglang
from roles.weights.manifest import MANIFEST
from roles.weights.model import Model
from roles.weights.tasks import weights
from tests.plan.conftest import Deploy, Outcome
from tests.unit.bundles import FILES, write

RELEASE = Release.of("0.5.23")
REVISION = "a" * 40
TINY = yaml.safe_load((Path(__file__).parents[2] / "group_vars/models/tiny-qwen3.yml").read_text())


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    files = {"config.json": {"bytes": 10, "sha256": "c" * 64}}
    manifest = {"source": {"repository": "org/m", "revision": REVISION}, "files": files}
    return write(tmp_path, {**FILES, f"models/m/{MANIFEST}": json.dumps(manifest)}, RELEASE.sha256)


def observed(**programs: str) -> dict[str, str]:
    """What the fake host answers: these programs with these lines, and that nothing was brought before."""
    text = "".join(f"\n::observed:: {name}\n{lines}\n" for name, lines in programs.items())
    nothing = {"::observed:: brought": "::observed:: brought\n"}
    others = {"uname -s": "Linux", "command -v useradd": "/usr/sbin/useradd"}
    return {f"::observed:: {next(iter(programs))}": text, **nothing, **others}


def written(outcome: Outcome) -> list[str]:
    """The contents of the files that were written."""
    return [base64.b64decode(found).decode() for found in re.findall(r"echo (\S+) \| base64", str(outcome.commands))]


def host(distribution: str = "debian 12", files: str = "") -> dict[str, str]:
    facts = {"lock": "taken", "apt": "/usr/bin/apt-get", "distribution": distribution, "packages": ""}
    return observed(**facts, user="", directories="", files=files)


def test_apt_gets_the_bundles_packages_and_nothing_else_before_it_installs(fake_deploy: Deploy, bundle: Path) -> None:
    outcome = fake_deploy(base, host(), bundle=str(bundle))
    assert outcome.changed[:2] == ["base | Bring the packages of the bundle", "base | Install the packages"]
    (update,) = [command for command in outcome.commands if "--error-on=any update" in command]
    assert (
        f"APT_CONFIG={APT_CONF}.new apt-get --quiet --error-on=any update && mv {APT_CONF}.new {APT_CONF}" in update
    )
    assert any('Dir::Etc::SourceParts "/dev/null";' in text for text in written(outcome))
    assert "deb [trusted=yes] file:/opt/slipway/bundle/packages ./\n" in written(outcome)


def test_packages_that_the_host_has_been_given_are_not_sent_again(fake_deploy: Deploy, bundle: Path) -> None:
    sha256 = apt_conf(bundle_at(str(bundle))).sha256
    outcome = fake_deploy(base, host(files=f"{sha256}  {APT_CONF}\n644 root root {APT_CONF}"), bundle=str(bundle))
    assert "base | Bring the packages of the bundle" not in outcome.changed


def test_another_distribution_is_refused_untouched(fake_deploy: Deploy, bundle: Path) -> None:
    with pytest.raises(DeployError, match=r"are for debian 12, and the host is ubuntu 24\.04"):
        fake_deploy(base, host("ubuntu 24.04"), bundle=str(bundle))


def build(fake_deploy: Deploy, bundle: Path, **facts: str) -> Outcome:
    bare = {"machine": "x86_64", "python": "3.11.2", "free": str(2**40), "uv": "", "release": ""}
    return fake_deploy(sglang, observed(**{**bare, **facts}), bundle=str(bundle))


def test_the_installers_take_the_bundles_wheels_and_ask_no_index(fake_deploy: Deploy, bundle: Path) -> None:
    outcome = build(fake_deploy, bundle)
    job = outcome.commands[-1]
    wheels = f"{RELEASE.aside}/wheels"
    for setting in ("UV_OFFLINE=1", f"UV_FIND_LINKS={wheels}", "PIP_NO_INDEX=1", f"PIP_FIND_LINKS={wheels}"):
        assert f"--setenv={setting}" in job
    assert any(f"install -d -m 0755 {wheels}" in command for command in outcome.commands)


def test_a_host_with_another_python_is_refused_untouched(fake_deploy: Deploy, bundle: Path) -> None:
    with pytest.raises(DeployError, match=r"for Python 3\.11, and the host has 3\.12"):
        build(fake_deploy, bundle, python="3.12.3")


def test_a_host_without_room_for_what_is_copied_is_refused_untouched(fake_deploy: Deploy, bundle: Path) -> None:
    build(fake_deploy, bundle, free=str(BYTES_NEEDED + 3))
    with pytest.raises(DeployError, match=r"needs 14 GiB and 0\.0 GiB for what is copied from the bundle"):
        build(fake_deploy, bundle, free=str(BYTES_NEEDED + 2))


def proved(fake_deploy: Deploy, bundle: Path, **data: str) -> Outcome:
    """Bring flash-attn to a host whose release is still to be installed."""
    facts = observed(record="", capability="12.0", release="", wheels="")
    inventory = site({"fake_responses": facts, "bundle": str(bundle), **data})
    return fake_deploy(flash_attn, inventory=inventory)


@pytest.mark.parametrize(
    ("files", "data", "missing"),
    [
        ({}, {}, "wheel==0.48.0"),
        ({"flash_attn/wheel-0.48.0-py3-none-any.whl": "4"}, {}, "flash-attn==2.8.3.post2"),
        ({}, {"flash_attn": "wheel", "flash_attn_wheel": "/w.whl", "flash_attn_wheel_sha256": "f" * 64}, "wheel=="),
    ],
)
def test_a_bundle_without_what_flash_attn_needs_is_refused_untouched(
    fake_deploy: Deploy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, str],
    data: dict[str, str],
    missing: str,
) -> None:
    (text,) = files.values() or [""]
    lock = f"wheel==0.48.0 --hash=sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    monkeypatch.setattr("roles.flash_attn.tasks.lock_of", lambda name: lock if name == "tools" else lock_of(name))
    with pytest.raises(DeployError, match=rf"flash_attn does not have {re.escape(missing)}"):
        proved(fake_deploy, write(tmp_path, {**FILES, **files}, RELEASE.sha256), **data)


def site(data: dict[str, Any], **source: str) -> SiteInventory:
    """A host that serves a model with this source."""
    written = {**TINY, "name": "m", "source": {"repository": "org/m", "revision": REVISION, **source}}
    model = Model.read(written, "m.yml")
    profile = Profile(name="m", description="", model="m", server={})
    fake = {"fake_delay": 0, "fake_delay_jitter": 0, "profile": "m"}
    return SiteInventory(Site({"m": model}, {"m": profile}), {"@fake/host": {**fake, **data}}, {}, {})


def test_weights_must_be_those_that_the_bundle_names(fake_deploy: Deploy, bundle: Path) -> None:
    answers = observed(weights='{"free": 1000000000, "folders": {}}', token="", rsync="")
    data = {"bundle": str(bundle), "fake_responses": answers}
    outcome = fake_deploy(weights, inventory=site(data, directory="/data/m"))
    instructions = json.loads(next(text for text in written(outcome) if text.startswith("{")))
    assert instructions["source"]["files"] == {"config.json": {"bytes": 10, "sha256": "c" * 64}}


def test_what_hosts_need_is_read_from_their_settings() -> None:
    data = {
        "hardware": {"gpus": 8},
        "base_packages": ["htop"],
        "front_enabled": True,
        "cuda_driver": "manage",
        "cuda_toolkit": "apt",
        "flash_attn_version": "2.8.3.post2",
    }
    needs = needs_of(site(data, rsync="other:/data/m"), Distribution("debian", "12"))
    assert {*PACKAGES, "htop", "nginx-light", "rsync", "nvidia-driver-cuda", "linux-headers-amd64"} <= needs.packages
    assert "cuda-toolkit-13-0=13.0.3-*" in needs.packages
    assert (needs.driver_branches, needs.flash_attn, set(needs.models)) == ({580}, {"2.8.3.post2", "tools"}, {"m"})
    plain = needs_of(site({"hardware": {"gpus": 0}}), Distribution("debian", "12"))
    assert plain.packages == set(PACKAGES)
    assert plain.flash_attn == set()
    given = {
        "hardware": {"gpus": 8},
        "flash_attn": "wheel",
        "flash_attn_wheel": "/w.whl",
        "flash_attn_wheel_sha256": "f" * 64,
    }
    assert needs_of(site(given), Distribution("debian", "12")).flash_attn == {"tools"}
