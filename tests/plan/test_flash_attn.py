"""The role flash_attn."""

from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.exceptions import DeployError

from inventory import Site, SiteInventory
from roles.flash_attn import operations
from roles.flash_attn.tasks import flash_attn
from tests.plan.conftest import Deploy, Outcome

RELEASE = "python=3.11\ntorch=2.14.1\ncuda=13.0"
KEY = "2.8.3.post2-torch2.14.1-cuda13.0-python3.11-sm120"
WHEEL = f"/opt/slipway/wheels/{KEY}/flash_attn.whl"
RECORD = '{"build": "2.8.3.post2", "architecture": "120"}'


def observed(record: str = "", capability: str = "12.0", release: str = RELEASE, wheels: str = "") -> str:
    programs = {"record": record, "capability": capability, "release": release, "wheels": wheels}
    return "".join(f"\n::observed:: {name}\n{text}\n" for name, text in programs.items())


def deploy(fake_deploy: Deploy, observation: str, **variables: Any) -> Outcome:
    data = {
        "fake_delay": 0,
        "fake_delay_jitter": 0,
        "fake_responses": {"::observed:: record": observation},
        "profile": "any",
        **variables,
    }
    return fake_deploy(flash_attn, inventory=SiteInventory(Site({}, {}), {"@fake/host": data}, {}, {}))


@pytest.fixture(autouse=True)
def controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheels on this side, where a download has arrived: a fake host sends no bytes."""
    monkeypatch.setattr(operations, "CONTROLLER", tmp_path)
    (tmp_path / KEY).mkdir()
    (tmp_path / KEY / ".flash_attn.whl.new").write_text("wheel")
    return tmp_path


def test_a_host_with_gpus_builds_by_default_as_a_job_of_its_own(fake_deploy: Deploy) -> None:
    outcome = deploy(fake_deploy, observed(wheels=WHEEL))
    assert outcome.changed == ["flash_attn | Install flash-attn and prove it"]
    job = next(command for command in outcome.commands if "systemd-run" in command)
    assert f"slipway-flash-attn-{KEY}.service" in job


def test_a_release_with_the_proved_wheel_costs_one_command_and_is_not_changed(fake_deploy: Deploy) -> None:
    outcome = deploy(fake_deploy, observed(record=RECORD))
    assert outcome.changed == []
    assert len(outcome.commands) == 1


def test_a_built_wheel_comes_back_for_the_next_host(fake_deploy: Deploy, controller: Path) -> None:
    outcome = deploy(fake_deploy, observed(wheels=WHEEL))
    assert outcome.changed
    assert (controller / KEY / "flash_attn.whl").read_text() == "wheel"


def test_a_wheel_of_another_host_is_sent_before_the_job(fake_deploy: Deploy, controller: Path) -> None:
    (controller / KEY / "flash_attn.whl").write_text("wheel")
    commands = deploy(fake_deploy, observed()).commands
    sent = next(i for i, command in enumerate(commands) if f"mv /opt/slipway/wheels/{KEY}.new" in command)
    job = next(i for i, command in enumerate(commands) if "systemd-run" in command)
    assert sent < job


def test_another_version_or_architecture_is_installed_anew(fake_deploy: Deploy) -> None:
    assert deploy(fake_deploy, observed(record=RECORD.replace("120", "90"), wheels=WHEEL)).changed


def test_a_host_without_gpus_gets_none(fake_deploy: Deploy) -> None:
    outcome = deploy(fake_deploy, observed(capability=""), hardware={"gpus": 0})
    assert outcome.changed == []


def test_off_takes_it_out_of_the_release(fake_deploy: Deploy) -> None:
    outcome = deploy(fake_deploy, observed(record=RECORD), flash_attn="off")
    assert outcome.changed == ["flash_attn | Take flash-attn out of the release"]
    uninstall, forget = outcome.commands[1:]
    assert "uv pip uninstall" in uninstall
    assert "rm -f" in forget


def test_a_gpu_that_it_has_no_code_for_is_refused_before_anything(fake_deploy: Deploy) -> None:
    with pytest.raises(
        DeployError, match=r"no code for compute capability 7\.5, expected 8\.x, 9\.x, 10\.x or 12\.x"
    ):
        deploy(fake_deploy, observed(capability="7.5"))


def test_a_given_wheel_needs_no_release_to_be_known_beforehand(fake_deploy: Deploy) -> None:
    outcome = deploy(
        fake_deploy,
        observed(),
        flash_attn="wheel",
        flash_attn_wheel="https://example.org/flash_attn.whl",
        flash_attn_wheel_sha256="a" * 64,
    )
    job = next(command for command in outcome.commands if "systemd-run" in command)
    assert "slipway-flash-attn-" + "a" * 64 in job
