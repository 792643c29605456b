"""The role base."""

import pytest
from pyinfra.api.exceptions import DeployError

from roles.base.layout import DIRECTORIES, LIMITS, PACKAGES
from roles.base.tasks import base
from tests.plan.conftest import Deploy

_FOR_PYINFRA = {"uname -s": "Linux", "command -v useradd": "/usr/sbin/useradd"}
"""What its own operations ask for."""


def observed(**programs: str) -> str:
    """The output of an observation: one program's lines after another's."""
    return "".join(f"\n::observed:: {name}\n{text}\n" for name, text in programs.items())


def bare(apt: str = "/usr/bin/apt-get") -> dict[str, str]:
    nothing = observed(
        lock="taken", apt=apt, distribution="debian 12", packages="", user="", directories="", files=""
    )
    return {"::observed:: apt": nothing, **_FOR_PYINFRA}


def right() -> dict[str, str]:
    mode = {directory.path: directory for directory in DIRECTORIES}
    return {
        "::observed:: apt": observed(
            lock="taken",
            apt="/usr/bin/apt-get",
            distribution="debian 12",
            packages="\n".join(f"installed {name}" for name in PACKAGES),
            user="sglang:x:999:999::/var/lib/slipway:/usr/sbin/nologin",
            directories="\n".join(f"{d.mode.lstrip('0')} {d.user} {d.group} {path}" for path, d in mode.items()),
            files=f"{LIMITS.sha256}  {LIMITS.path}\n644 root root {LIMITS.path}",
        ),
        **_FOR_PYINFRA,
    }


SENTENCES = [
    "base | Install the packages",
    "base | Create the service's user",
    "base | Create the directories",
    "base | Set the limits of the service's user",
]


def test_a_bare_host_gets_everything_in_this_order(fake_deploy: Deploy) -> None:
    outcome = fake_deploy(base, bare())
    assert outcome.operations == outcome.changed == SENTENCES
    text = "\n".join(outcome.commands)
    assert "apt-get" in text
    assert "useradd" in text
    assert "install -d -o sglang -g sglang -m 0750 /var/cache/slipway" in text


def test_a_host_that_is_right_costs_one_command_and_is_not_changed(fake_deploy: Deploy) -> None:
    outcome = fake_deploy(base, right())
    assert outcome.operations == SENTENCES
    assert outcome.changed == []
    assert len(outcome.commands) == 1


@pytest.mark.parametrize(
    ("declared", "by_hand", "operation"),
    [
        ("750 sglang", "777 sglang", "base | Create the directories"),
        ("/usr/sbin/nologin", "/bin/sh", "base | Create the service's user"),
    ],
)
def test_what_was_changed_by_hand_is_put_back(
    fake_deploy: Deploy, declared: str, by_hand: str, operation: str
) -> None:
    response = right()
    response["::observed:: apt"] = response["::observed:: apt"].replace(declared, by_hand)
    outcome = fake_deploy(base, response)
    assert outcome.changed == [operation]


def test_a_host_without_apt_is_refused_before_anything(fake_deploy: Deploy) -> None:
    with pytest.raises(DeployError, match=r"@fake/host: no apt-get found; Debian 12"):
        fake_deploy(base, bare(apt=""))


def test_further_packages_are_a_variable(fake_deploy: Deploy) -> None:
    outcome = fake_deploy(base, right(), base_packages=["htop"])
    assert outcome.changed == ["base | Install the packages"]
    assert any("htop" in command for command in outcome.commands)


def test_a_host_that_another_run_works_on_is_left_alone(fake_deploy: Deploy) -> None:
    response = right()
    response["::observed:: apt"] = response["::observed:: apt"].replace("taken", "held ann@desk since 10:00:00 UTC")
    with pytest.raises(DeployError, match="another run is at work, of ann@desk since 10:00:00 UTC"):
        fake_deploy(base, response)
