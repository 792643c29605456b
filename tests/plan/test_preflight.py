"""The role preflight."""

from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.exceptions import DeployError

from inventory import Site, SiteInventory
from roles.preflight.tasks import preflight
from tests.plan.conftest import Deploy, Outcome

HOSTS = Path(__file__).parents[1] / "unit" / "data" / "hosts"


def check(fake_deploy: Deploy, recorded: str, **variables: Any) -> Outcome:
    """Run the role on a host that answers as recorded."""
    data = {
        "fake_delay": 0,
        "fake_delay_jitter": 0,
        "fake_responses": {"::observed:: nvidia-smi": (HOSTS / f"{recorded}.txt").read_text()},
        "profile": "any",
        **variables,
    }
    return fake_deploy(preflight, inventory=SiteInventory(Site({}, {}), {"@fake/host": data}, {}, {}))


def test_a_host_as_declared_costs_one_command_and_no_operation(fake_deploy: Deploy) -> None:
    outcome = check(fake_deploy, "rtx_pro_6000_x8", hardware={"gpus": 8, "compute_capability": "12.0"})
    assert len(outcome.commands) == 1
    assert outcome.operations == []


def test_a_host_that_lost_a_gpu_ends_the_run_with_every_refusal(fake_deploy: Deploy) -> None:
    with pytest.raises(DeployError, match=r"(?s)@fake/host: .*0000:a1:00.0.*\n.*@fake/host: .*Xid 79"):
        check(fake_deploy, "lost_gpu", hardware={"gpus": 8})


def test_warnings_do_not_end_the_run(fake_deploy: Deploy, caplog: pytest.LogCaptureFixture) -> None:
    check(fake_deploy, "untuned", hardware={"gpus": 8})
    assert "iommu=pt" in caplog.text


def test_a_bare_host_passes_only_if_the_run_brings_the_driver(fake_deploy: Deploy) -> None:
    check(fake_deploy, "bare", hardware={"gpus": 8}, cuda_driver="manage")
    with pytest.raises(DeployError, match=r"no NVIDIA driver is loaded, expected 580\.65\.06 or newer"):
        check(fake_deploy, "bare", hardware={"gpus": 8})


def test_a_host_declared_without_gpus_passes(fake_deploy: Deploy) -> None:
    assert len(check(fake_deploy, "bare", hardware={"gpus": 0}).commands) == 1
