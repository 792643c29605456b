"""The role preflight."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.exceptions import DeployError

from inventory import Site, SiteInventory
from roles.preflight.tasks import collective, preflight
from roles.serve.profile import Profile
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


# collective

PROFILE = Profile(name="p", description="x", model="m", environment={"NCCL_P2P_LEVEL": "SYS"})


def exchange(
    fake_deploy: Deploy, *, gpus: int = 8, busy: bool = False, proof: str = "", problem: str = "", **variables: Any
) -> Outcome:
    """Run `collective` on a host whose GPUs exchange values, or have a problem."""
    programs = {"gpus": "580.82.07\n" * gpus, "programs": "4242" if busy else "", "proof": proof}
    document = json.dumps({"problem": problem, "measured": []})
    data = {
        "fake_delay": 0,
        "fake_delay_jitter": 0,
        "fake_responses": {
            "::observed:: gpus": "".join(f"\n::observed:: {name}\n{text}\n" for name, text in programs.items()),
            "collective.py nccl": document,
        },
        "profile": "p",
        **variables,
    }
    site = Site({}, {"p": PROFILE})
    return fake_deploy(collective, inventory=SiteInventory(site, {"@fake/host": data}, {}, {}))


def proof_in(outcome: Outcome) -> str:
    """What the run has written down."""
    return next(command for command in outcome.commands if "collective-proof.new" in command).split()[1]


def test_the_gpus_exchange_values_once_in_the_profile_s_environment(fake_deploy: Deploy) -> None:
    first = exchange(fake_deploy)
    tried = next(command for command in first.commands if "collective.py nccl 8" in command)
    assert "NCCL_P2P_LEVEL=SYS" in tried
    assert "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7" in tried
    second = exchange(fake_deploy, proof=proof_in(first))
    assert second.changed == []
    assert len(second.commands) == 1


def test_an_exchange_that_fails_ends_the_run_and_is_not_remembered(
    fake_deploy: Deploy, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Exception, match="No hosts remaining"):
        exchange(fake_deploy, problem="rank 3 got wrong values in all-reduce of 64 KiB: element 0 is 1, not 2")
    assert "the GPUs do not exchange values: rank 3 got wrong values" in caplog.text


def test_gpus_in_use_are_left_alone(fake_deploy: Deploy) -> None:
    assert exchange(fake_deploy, busy=True).operations == []


def test_one_gpu_or_none_exchanges_nothing(fake_deploy: Deploy) -> None:
    assert exchange(fake_deploy, gpus=1).operations == []
    assert exchange(fake_deploy, hardware={"gpus": 0}).commands == []
