"""The role preflight."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.command import FunctionCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import DeployError
from pyinfra.api.operation import operation

from inventory import Site, SiteInventory
from roles.preflight.exchange import PROOF
from roles.preflight.operations import check_collective
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


def test_a_host_that_cannot_be_read_is_told_in_one_sentence(fake_deploy: Deploy) -> None:
    refused = {"::observed:: nvidia-smi": {"success": False, "stderr": "sudo: a password is required"}}
    data = {"fake_delay": 0, "fake_delay_jitter": 0, "fake_responses": refused, "profile": "any"}
    with pytest.raises(DeployError) as told:
        fake_deploy(preflight, inventory=SiteInventory(Site({}, {}), {"@fake/host": data}, {}, {}))
    assert str(told.value).startswith(
        "host @fake/host: cannot be read (sudo: a password is required); Slipway needs "
    )
    assert "\n" not in str(told.value)


# collective

PROFILE = Profile(name="p", description="x", model="m", environment={"NCCL_P2P_LEVEL": "SYS"})
ON_CPU = Profile(name="p", description="x", model="m", server={"device": "cpu"})


def run(
    fake_deploy: Deploy,
    role: Any = collective,
    *,
    gpus: int = 8,
    busy: bool = False,
    proofs: str = "",
    problem: str = "",
    profile: Profile = PROFILE,
) -> Outcome:
    """Run `role` on a host whose GPUs exchange values, or have a problem."""
    programs = {"gpus": "580.82.07\n" * gpus, "programs": "4242" if busy else "", "proofs": proofs}
    document = json.dumps({"problem": problem, "measured": []})
    data = {
        "fake_delay": 0,
        "fake_delay_jitter": 0,
        "fake_responses": {
            "::observed:: gpus": "".join(f"\n::observed:: {name}\n{text}\n" for name, text in programs.items()),
            "collective.py nccl": document,
        },
        "profile": "p",
        "hardware": {"gpus": gpus},
    }
    site = Site({}, {"p": profile})
    return fake_deploy(role, inventory=SiteInventory(site, {"@fake/host": data}, {}, {}))


def proof_in(outcome: Outcome) -> str:
    """What the run has written down."""
    return next(command for command in outcome.commands if f">>{PROOF}" in command).split()[1]


def test_the_gpus_exchange_values_once_in_the_profile_s_environment(fake_deploy: Deploy) -> None:
    first = run(fake_deploy)
    tried = next(command for command in first.commands if "collective.py nccl 8" in command)
    assert "NCCL_P2P_LEVEL=SYS" in tried
    assert "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7" in tried
    second = run(fake_deploy, proofs=f"another\n{proof_in(first)}")
    assert second.changed == []
    assert len(second.commands) == 1


def test_an_exchange_that_fails_ends_the_run_and_is_not_remembered(
    fake_deploy: Deploy, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Exception, match="No hosts remaining"):
        run(fake_deploy, problem="rank 3 got wrong values in all-reduce of 64 KiB: element 0 is 1, not 2")
    assert "the GPUs do not exchange values: rank 3 got wrong values" in caplog.text


def test_gpus_in_use_are_left_to_the_switch(fake_deploy: Deploy, caplog: pytest.LogCaptureFixture) -> None:
    assert run(fake_deploy, busy=True).changed == []
    assert "the GPUs are in use, so the next switch checks their exchange, between the servers" in caplog.text


@pytest.mark.parametrize("case", [{"gpus": 1}, {"gpus": 0}, {"profile": ON_CPU}])
def test_a_profile_with_fewer_than_two_gpus_exchanges_nothing(fake_deploy: Deploy, case: dict[str, Any]) -> None:
    assert run(fake_deploy, **case).commands == []


@operation()
def switched(profile: Profile) -> Generator[FunctionCommand]:
    """What the switch does between two servers, alone."""
    yield FunctionCommand(lambda state, host: check_collective(host, profile), (), {})


def between_servers(profile: Profile = PROFILE) -> Any:
    return deploy("switch")(lambda: switched(name="Switch", profile=profile))


def test_the_switch_checks_what_was_not_checked_before(fake_deploy: Deploy) -> None:
    first = run(fake_deploy, between_servers())
    assert any("collective.py nccl 8" in command for command in first.commands)
    again = run(fake_deploy, between_servers(), proofs=proof_in(first))
    assert len(again.commands) == 1
    assert run(fake_deploy, between_servers(ON_CPU)).commands == []


def test_an_exchange_that_fails_ends_the_switch(fake_deploy: Deploy, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(Exception, match="No hosts remaining"):
        run(fake_deploy, between_servers(), problem="rank 0 failed in all-reduce of 64 KiB: NCCL error")
    assert "RemoteError: the GPUs do not exchange values: rank 0 failed" in caplog.text
