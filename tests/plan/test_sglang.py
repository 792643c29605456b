"""The role sglang."""

import pytest
from pyinfra.api.exceptions import DeployError

from roles.sglang.release import Release, Uv
from roles.sglang.tasks import sglang
from tests.plan.conftest import Deploy

RELEASE = Release.of("0.5.23")
BARE = {"machine": "x86_64", "python": "3.11.2", "free": str(2**40), "uv": "", "release": ""}
RIGHT = {**BARE, "uv": f"uv {Uv.locked().version} (x86_64)", "release": "complete"}


def observed(programs: dict[str, str]) -> dict[str, str]:
    text = "".join(f"\n::observed:: {name}\n{lines}\n" for name, lines in programs.items())
    return {"::observed:: machine": text, "uname -s": "Linux"}


def test_a_bare_host_gets_the_release_from_one_job(fake_deploy: Deploy) -> None:
    outcome = fake_deploy(sglang, observed(BARE), sglang_installer_environment={"HTTPS_PROXY": "http://proxy:3128"})
    assert outcome.changed == ["sglang | Install the release"]
    job = outcome.commands[-1]
    assert f"--unit=slipway-release-{RELEASE.name}.service" in job
    assert "--setenv=HTTPS_PROXY=http://proxy:3128" in job
    assert f"python3 {RELEASE.aside}/builder.py {RELEASE.aside}" in job


def test_everything_it_writes_lies_aside(fake_deploy: Deploy) -> None:
    outcome = fake_deploy(sglang, observed(BARE))
    for command in outcome.commands[:-1]:
        assert RELEASE.aside in command or "::observed::" in command or "uname -s" in command


def test_a_second_run_changes_nothing(fake_deploy: Deploy) -> None:
    outcome = fake_deploy(sglang, observed(RIGHT))
    assert outcome.changed == []


@pytest.mark.parametrize("difference", [{"release": ""}, {"uv": ""}, {"uv": "uv 0.1.0 (x86_64)"}])
def test_a_damaged_release_or_another_uv_is_put_right(fake_deploy: Deploy, difference: dict[str, str]) -> None:
    outcome = fake_deploy(sglang, observed({**RIGHT, **difference}))
    assert outcome.changed == ["sglang | Install the release"]


@pytest.mark.parametrize(
    ("host", "sentence"),
    [
        ({"python": "3.10.12"}, r"python3 is 3\.10\.12; SGLang 0\.5\.23 is locked for Python 3\.11 and 3\.12"),
        ({"free": str(2**30)}, r"1\.0 GiB are free for /opt/slipway/releases; .* needs 14 GiB"),
        ({"machine": "aarch64"}, r"it is a aarch64 machine"),
    ],
)
def test_a_host_that_cannot_take_it_is_refused_untouched(
    fake_deploy: Deploy, host: dict[str, str], sentence: str
) -> None:
    with pytest.raises(DeployError, match=sentence):
        fake_deploy(sglang, observed({**BARE, **host}))


def test_a_host_without_python_is_not_refused_as_base_installs_it(fake_deploy: Deploy) -> None:
    outcome = fake_deploy(sglang, observed({**BARE, "python": ""}))
    assert outcome.changed == ["sglang | Install the release"]


def test_a_full_disk_does_not_matter_to_a_release_that_is_there(fake_deploy: Deploy) -> None:
    outcome = fake_deploy(sglang, observed({**RIGHT, "free": "0"}))
    assert outcome.changed == []
