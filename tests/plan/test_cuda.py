"""The role cuda."""

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.exceptions import ConnectError, DeployError
from pyinfra.connectors.fake import FakeConnector

from inventory import Site, SiteInventory
from roles.cuda import host_settings, reboot
from roles.cuda.distributions import KEY_FINGERPRINT
from roles.cuda.packages import KEYRING, SOURCE
from roles.cuda.settings import CudaSettings
from roles.cuda.tasks import cuda
from roles.files import File
from roles.templates import render
from tests.plan.conftest import Deploy, Outcome

HOSTS = Path(__file__).parents[1] / "unit" / "data" / "hosts"
IDENTITY = "/opt/slipway/releases/x/cuda 1 2"
TOOLKIT = f"nvcc=13.0\ntorch=13.0\nwhole=yes\nidentity={IDENTITY}\nproved={IDENTITY} for 12.0"
PACKAGES = (
    "nvidia-driver-pinning-580",
    "nvidia-kernel-open-dkms",
    "nvidia-driver-cuda",
    "nvidia-persistenced",
    "linux-headers-amd64",
    "linux-headers-6.8.0-79-generic",
    "dkms",
)
LIVE = "hmm=N\nuvm=loaded\npersistenced=enabled active\nfabricmanager=disabled inactive\npower_limit=enabled"
IN_FORCE = LIVE.replace("hmm=N", "hmm=Y")
NVIDIAS_KEY = File(KEYRING, "a key")
HELD = "\n".join(f"hi  {name}" for name in PACKAGES if name != "dkms") + "\nii  dkms"
MANAGED = {"cuda_driver": "manage", "hardware": {"gpus": 8}}
EVERYTHING = {
    **MANAGED,
    "cuda_sysctl": {"vm.swappiness": 0},
    "cuda_uvm_disable_hmm": True,
    "cuda_boot_parameters": ["iommu=pt"],
    "cuda_power_limit_watts": 600,
}


def listing(*files: File) -> str:
    """What files_program prints of files that are right."""
    return "\n".join(f"{f.sha256}  {f.path}\n{f.mode.lstrip('0')} {f.user} {f.group} {f.path}" for f in files)


def recorded(host: str, **programs: str) -> str:
    """An observation: the recorded host's programs, and those given."""
    text = (HOSTS / f"{host}.txt").read_text()
    own = {
        "os": "ID=debian\nVERSION_ID=12",
        "gpus": "12.0, 600.00\n" * 8,
        "packages": "",
        "live": LIVE,
        "sysctl": "",
        "files": "",
        "key": "",
        "toolkit": TOOLKIT,
        **programs,
    }
    return text + "".join(f"\n::observed:: {name}\n{lines}\n" for name, lines in own.items())


def settled(*, damage: Callable[[str], str] = str, packages: str = HELD, **programs: str) -> str:
    """A host on which `manage`, with every setting, has done its work; then its files were damaged."""
    own = {name.removeprefix("cuda_"): value for name, value in EVERYTHING.items() if name.startswith("cuda_")}
    files = host_settings.files(CudaSettings.model_validate(own))
    uri = "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64"
    files.append(File(SOURCE, render("cuda/nvidia.sources.j2", {"uri": uri, "key": KEYRING}, {})))
    right = {"live": IN_FORCE, "sysctl": "vm.swappiness=0", "key": NVIDIAS_KEY.sha256, **programs}
    listed = damage(listing(*files, NVIDIAS_KEY))
    return recorded("rtx_pro_6000_x8", packages=packages, files=listed, **right)


def deploy(fake_deploy: Deploy, observation: str, **variables: Any) -> Outcome:
    data = {
        "fake_delay": 0,
        "fake_delay_jitter": 0,
        "fake_responses": {"::observed:: os": observation},
        "profile": "any",
        **variables,
    }
    return fake_deploy(cuda, inventory=SiteInventory(Site({}, {}), {"@fake/host": data}, {}, {}))


def test_require_with_a_proved_toolkit_costs_one_command_and_changes_nothing(fake_deploy: Deploy) -> None:
    outcome = deploy(fake_deploy, recorded("rtx_pro_6000_x8"))
    assert outcome.changed == []
    assert len(outcome.commands) == 1


def test_a_managed_host_that_is_right_is_not_changed(fake_deploy: Deploy) -> None:
    outcome = deploy(fake_deploy, settled(), **EVERYTHING)
    assert outcome.changed == []
    assert len(outcome.commands) == 1


def damaged(listed: str, path: str, line: str, by_hand: str) -> str:
    """A listing in which the one line of `path` that matches was changed."""
    changed, times = re.subn(f"^{line.replace('PATH', re.escape(path))}$", by_hand, listed, flags=re.MULTILINE)
    assert times == 1
    return changed


DAMAGE = pytest.mark.parametrize(
    ("line", "by_hand"),
    [
        (r"\w{64}(  PATH)", rf"{'0' * 64}\1"),
        (r"644( root root PATH)", r"600\1"),
        (r"644 root( root PATH)", r"644 daemon\1"),
        (r"\w{64}  PATH\n.* PATH", ""),
    ],
    ids=["content", "mode", "owner", "gone"],
)
PUT_BACK, PUT_IN_FORCE = "cuda | Write the host settings", "cuda | Put the host settings in force"
EFFECTS = {
    host_settings.NOUVEAU: "update-initramfs -u",
    host_settings.UVM: "update-initramfs -u",
    host_settings.SYSCTL: None,  # what it says is in force all the same
    host_settings.GRUB: "update-grub",
    host_settings.POWER: "systemctl restart slipway-power-limit.service",
}


@DAMAGE
@pytest.mark.parametrize("path", host_settings.PATHS)
def test_a_host_setting_changed_by_hand_is_put_back(fake_deploy: Deploy, path: str, line: str, by_hand: str) -> None:
    seen = settled(damage=lambda listed: damaged(listed, path, line, by_hand))
    outcome = deploy(fake_deploy, seen, **EVERYTHING)
    effect = EFFECTS[path]
    assert outcome.changed == ([PUT_BACK, PUT_IN_FORCE] if effect else [PUT_BACK])
    assert effect is None or outcome.commands[-1] == effect
    assert [other for other in host_settings.PATHS if any(f".new {other} ||" in c for c in outcome.commands)] == [
        path
    ]


@DAMAGE
def test_nvidias_key_changed_by_hand_is_fetched_and_proved_again(
    fake_deploy: Deploy, line: str, by_hand: str
) -> None:
    seen = settled(damage=lambda listed: damaged(listed, KEYRING, line, by_hand), packages=f"{HELD}\nii  gpg")
    outcome = deploy(fake_deploy, seen, **EVERYTHING)
    assert outcome.changed == ["cuda | Trust NVIDIA's key"]
    assert KEY_FINGERPRINT in "\n".join(outcome.commands)
    assert "apt-get" not in "\n".join(outcome.commands)  # which would stumble over the key
    assert outcome.commands[-1].endswith(f"mv {KEYRING}.new {KEYRING}")


def test_a_key_that_was_not_proved_to_be_nvidias_is_not_trusted(fake_deploy: Deploy) -> None:
    assert deploy(fake_deploy, settled(key=""), **EVERYTHING).changed == ["cuda | Trust NVIDIA's key"]


MIRROR = {"cuda_toolkit": "apt", "cuda_apt_mirror": "https://mirror.example/cuda", "cuda_apt_key": "a mirror's key"}


@DAMAGE
@pytest.mark.parametrize(
    ("path", "operation"),
    [(KEYRING, "cuda | Trust the repository's key"), (SOURCE, "cuda | Add NVIDIA's repository")],
)
def test_a_given_repository_changed_by_hand_is_put_back(
    fake_deploy: Deploy, path: str, operation: str, line: str, by_hand: str
) -> None:
    source = render("cuda/nvidia.sources.j2", {"uri": MIRROR["cuda_apt_mirror"], "key": KEYRING}, {})
    right = listing(File(KEYRING, "a mirror's key\n"), File(SOURCE, source))
    host = {"packages": "ii  cuda-toolkit-13-0"}
    assert deploy(fake_deploy, recorded("rtx_pro_6000_x8", files=right, **host), **MIRROR).changed == []
    seen = recorded("rtx_pro_6000_x8", files=damaged(right, path, line, by_hand), **host)
    assert deploy(fake_deploy, seen, **MIRROR).changed == [operation]


@pytest.mark.parametrize(
    ("seen", "operation", "command"),
    [
        ({"sysctl": "vm.swappiness=60"}, PUT_IN_FORCE, f"sysctl --quiet --load={host_settings.SYSCTL}"),
        ({"gpus": "12.0, 450.00\n" * 8}, PUT_IN_FORCE, "systemctl restart slipway-power-limit.service"),
        (
            {"live": IN_FORCE.replace("power_limit=enabled", "power_limit=disabled")},
            PUT_IN_FORCE,
            "systemctl enable --quiet slipway-power-limit.service",
        ),
        (
            {"live": IN_FORCE.replace("enabled active", "enabled failed")},
            "cuda | Keep the driver's services running",
            "systemctl enable --now --quiet nvidia-persistenced",
        ),
        (
            {"live": IN_FORCE.replace("enabled active", "disabled active")},
            "cuda | Keep the driver's services running",
            "systemctl enable --now --quiet nvidia-persistenced",
        ),
        (
            {"packages": HELD.replace("hi  nvidia-driver-cuda", "ii  nvidia-driver-cuda")},
            "cuda | Hold driver and kernel against upgrades",
            "apt-mark hold",
        ),
    ],
    ids=["sysctl", "power limit", "power limit of the next boot", "service", "service of the next boot", "hold"],
)
def test_what_is_in_force_and_was_changed_by_hand_is_put_back(
    fake_deploy: Deploy, seen: dict[str, str], operation: str, command: str
) -> None:
    outcome = deploy(fake_deploy, settled(**seen), **EVERYTHING)  # type: ignore[arg-type]
    assert outcome.changed == [operation]
    assert command in "\n".join(outcome.commands[1:])


def test_a_bare_host_gets_repository_driver_hold_settings_and_services_in_this_order(fake_deploy: Deploy) -> None:
    bare = recorded("bare", gpus="", live="persistenced= inactive\nfabricmanager= inactive")
    outcome = deploy(fake_deploy, bare, **MANAGED)
    assert outcome.changed == [
        "cuda | Trust NVIDIA's key",
        "cuda | Add NVIDIA's repository",
        "cuda | Install the driver",
        "cuda | Hold driver and kernel against upgrades",
        "cuda | Write the host settings",
        "cuda | Put the host settings in force",
        "cuda | Reboot if the running kernel is not as declared",
        "cuda | Keep the driver's services running",
    ]
    text = "\n".join(outcome.commands)
    assert "packages nvidia-driver-pinning-580 nvidia-kernel-open-dkms nvidia-driver-cuda" in text
    assert "update-initramfs -u" in text
    assert "EB693B3035CD5710E231E123A4B469963BF863CC" in text
    assert "install nvidia-fabricmanager" not in text
    assert "enable --now --quiet nvidia-fabricmanager" not in text


def test_a_driver_that_is_not_loaded_yet_stops_the_run_unless_a_reboot_is_allowed(
    fake_deploy: Deploy, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = settled().replace("installed=580.82.07", "installed=580.95.05")
    with pytest.raises(Exception, match="No hosts remaining"):
        deploy(fake_deploy, waiting, **EVERYTHING)
    assert (
        "a reboot is needed, because driver 580.95.05 is installed, but 580.82.07 is loaded, "
        "expected `cuda_reboot: allow`" in caplog.text
    )


def test_a_host_that_does_not_come_back_from_its_reboot_ends_the_run(
    fake_deploy: Deploy, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reboot, "LIMIT", 0)
    monkeypatch.setattr(FakeConnector, "connect", unreachable_once_rebooted(FakeConnector.connect))
    waiting = settled().replace("installed=580.82.07", "installed=580.95.05")
    with pytest.raises(Exception, match="No hosts remaining"):
        deploy(fake_deploy, waiting, cuda_reboot="allow", **MANAGED)
    assert (
        "the host was rebooted, because driver 580.95.05 is installed, but 580.82.07 is loaded, and does not answer "
        "after 0 minutes, expected it back: look at its console." in caplog.text
    )


def unreachable_once_rebooted(connect: Callable[[FakeConnector], None]) -> Callable[[FakeConnector], None]:
    def attempt(connector: FakeConnector) -> None:
        if any("systemctl reboot" in command for command in connector.executed_commands):
            raise ConnectError("nobody answers")
        connect(connector)

    return attempt


def test_secure_boot_without_a_signed_module_is_refused_before_anything(fake_deploy: Deploy) -> None:
    with pytest.raises(DeployError, match="Secure Boot is on and no NVIDIA module is loaded, expected it off"):
        deploy(fake_deploy, recorded("secure_boot"), **MANAGED)


def test_three_versions_that_do_not_go_together_are_refused_before_anything(fake_deploy: Deploy) -> None:
    mixed = recorded("rtx_pro_6000_x8", toolkit=TOOLKIT.replace("nvcc=13.0", "nvcc=12.9"))
    with pytest.raises(DeployError, match=r"nvcc is of CUDA 12\.9, .* torch of CUDA 13\.0, driver 580\.82\.07"):
        deploy(fake_deploy, mixed)


def test_a_toolkit_that_is_not_there_is_refused(fake_deploy: Deploy) -> None:
    with pytest.raises(DeployError, match="there is no nvcc in /opt/cuda/bin, expected one"):
        deploy(fake_deploy, recorded("rtx_pro_6000_x8", toolkit=""), cuda_toolkit="present", cuda_home="/opt/cuda")


def test_a_host_without_gpus_gets_no_driver_but_a_toolkit(fake_deploy: Deploy) -> None:
    bare = recorded("bare", gpus="", toolkit="nvcc=13.0\ntorch=13.0\nidentity=x\nproved=").replace("|0x03", "|0x02")
    outcome = deploy(fake_deploy, bare, cuda_driver="manage", hardware={"gpus": 0})
    assert outcome.changed == [
        "cuda | Complete the toolkit of the release",
        "cuda | Prove that the toolkit compiles for the GPUs",
    ]
    assert "-arch=sm_120" in "\n".join(outcome.commands)


def test_the_toolkit_from_apt_comes_from_the_mirror_that_is_given(fake_deploy: Deploy) -> None:
    outcome = deploy(fake_deploy, recorded("rtx_pro_6000_x8"), **MIRROR)
    text = "\n".join(outcome.commands)
    assert base64.b64encode(b"a mirror's key\n").decode() in text
    assert "cuda-toolkit-13-0=13.0.3-*" in text
    assert outcome.changed[:3] == [
        "cuda | Trust the repository's key",
        "cuda | Add NVIDIA's repository",
        "cuda | Install the toolkit",
    ]
