"""What the role cuda decides: packages, files, reboots, and versions that go together."""

import subprocess
from pathlib import Path

import pytest

from roles.cuda import host_settings, packages, toolkit
from roles.cuda.distributions import KEY_FINGERPRINT, Distribution, distribution
from roles.cuda.host_settings import GRUB, NOUVEAU, POWER, SYSCTL, UVM, Live
from roles.cuda.settings import CudaSettings
from roles.files import File
from roles.paths import STATE
from roles.refusal import Refusal

DEBIAN, UBUNTU = Distribution("debian", "12"), Distribution("ubuntu", "24.04")
KERNEL = "6.1.0-40-amd64"


def settings(**variables: object) -> CudaSettings:
    return CudaSettings.select({f"cuda_{name}": value for name, value in variables.items()}, lambda _: "all.yml")


def live(**changes: object) -> Live:
    values: dict[str, object] = {
        "loaded_driver": "580.82.07",
        "installed_driver": "580.82.07",
        "boot_parameters": ("ro", "quiet"),
        "hmm_disabled": False,
        "uvm_loaded": True,
        "sysctl": {},
        "power_unit_enabled": True,
        "power_limits": (600.0,) * 8,
        "stale_boot": False,
        "stale_initramfs": False,
    }
    return Live(**{**values, **changes})  # type: ignore[arg-type]


# Settings


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"toolkit": "present"}, "cuda_home: with cuda_toolkit: present it must name the toolkit's directory"),
        (
            {"toolkit_version": "12.9.1"},
            "cuda_toolkit_version: with cuda_toolkit: pypi it must be what the lock holds, 13.0.3",
        ),
        ({"toolkit": "apt", "toolkit_version": "11.8"}, "cuda_toolkit_version: must be of CUDA 12 or 13, not 11.8"),
        ({"driver": "install"}, "all.yml: cuda_driver: input should be 'manage' or 'require', not 'install'"),
        (
            {"driver": "manage", "driver_branch": 535},
            "all.yml: cuda_driver_branch: must be 580 or newer for CUDA 13.0.3, not 535",
        ),
        ({"apt_mirror": "ftp://x"}, "cuda_apt_mirror"),
        ({"boot_parameters": ["iommu=pt; reboot"]}, "cuda_boot_parameters"),
        ({"power_limit_watts": 0}, "cuda_power_limit_watts"),
    ],
)
def test_bad_settings_are_refused_by_name(variables: dict[str, object], sentence: str) -> None:
    with pytest.raises(Refusal) as refused:
        settings(**variables)
    assert sentence in str(refused.value)


# Packages


def test_debian_takes_the_open_driver_from_nvidia_pinned_to_its_branch() -> None:
    names = DEBIAN.driver_packages(580, kernel=KERNEL, nvswitch=False)
    assert names[:3] == ("nvidia-driver-pinning-580", "nvidia-kernel-open-dkms", "nvidia-driver-cuda")
    assert {"dkms", f"linux-headers-{KERNEL}", "nvidia-persistenced"} <= set(names)
    assert DEBIAN.repository == "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64"


def test_ubuntu_takes_the_open_driver_from_its_own_archive() -> None:
    names = UBUNTU.driver_packages(580, kernel=KERNEL, nvswitch=False)
    assert names[:2] == ("nvidia-headless-580-server-open", "nvidia-utils-580-server")
    assert not UBUNTU.driver_from_nvidia
    assert UBUNTU.repository.endswith("/ubuntu2404/x86_64")


@pytest.mark.parametrize("system", [DEBIAN, UBUNTU])
def test_only_a_host_with_nvswitch_gets_fabricmanager(system: Distribution) -> None:
    assert not any("fabric" in name for name in system.driver_packages(580, kernel=KERNEL, nvswitch=False))
    assert any("fabric" in name for name in system.driver_packages(580, kernel=KERNEL, nvswitch=True))


def test_another_distribution_is_refused() -> None:
    with pytest.raises(Refusal, match="the distribution is fedora, expected debian or ubuntu: "):
        distribution({"ID": "fedora", "VERSION_ID": '"42"'})


def test_what_is_installed_is_not_installed_again() -> None:
    assert packages.install(["dkms"], {"dkms"}) == []
    assert packages.install_toolkit("cuda-toolkit-13-0=13.0.3-*", {"cuda-toolkit-13-0"}) == []
    assert packages.hold({"nvidia-driver-cuda"}, {"nvidia-driver-cuda"}, installing=False) == []


def test_the_pinning_package_is_installed_before_what_it_pins() -> None:
    update, pin, rest = packages.install(["nvidia-driver-pinning-580", "nvidia-driver-cuda"], set())
    assert "apt-get --quiet update" in update
    assert "install --allow-change-held-packages nvidia-driver-pinning-580\n" in pin
    assert "nvidia-driver-cuda" in rest


def test_apt_waits_for_others_whatever_it_does() -> None:
    commands = [
        *packages.trust("https://example.org", set()),
        *packages.install(["nvidia-driver-pinning-580", "nvidia-driver-cuda"], set()),
        *packages.install_toolkit("cuda-toolkit-13-0", set()),
        *packages.hold({"nvidia-driver-cuda"}, set(), installing=True),
    ]
    using = [command for command in commands if "apt-" in command and "--simulate" not in command]
    assert len(using) == 8
    assert all("flock" in command for command in using)


def trust(folder: Path, fingerprint: str) -> subprocess.CompletedProcess[str]:
    """Fetch a key with this fingerprint as NVIDIA's, and print what is remembered of it; all below `folder`."""
    fakes = {"curl": f"echo a key >{folder}{packages.KEYRING}.new", "gpg": f"echo fpr::::{fingerprint}:"}
    for name, program in fakes.items():
        (folder / name).write_text(f"#!/bin/sh\n{program}\n")
        (folder / name).chmod(0o755)
    (folder / STATE[1:]).mkdir(parents=True)
    program = "\n".join(["set -e", *packages.trust("https://example.org", {"gpg"}), packages.PROVED_KEY])
    for path in ("/etc/apt", STATE):
        program = program.replace(path, f"{folder}{path}")
    path = f"{folder}:/usr/bin:/bin"
    return subprocess.run(["sh", "-c", program], env={"PATH": path}, capture_output=True, text=True, check=False)


def test_a_key_with_nvidias_fingerprint_is_put_in_place_and_remembered(tmp_path: Path) -> None:
    fetched = trust(tmp_path, KEY_FINGERPRINT)
    keyring = File(packages.KEYRING, Path(f"{tmp_path}{packages.KEYRING}").read_text())
    assert fetched.stdout.strip() == keyring.sha256


def test_a_key_with_another_fingerprint_is_refused(tmp_path: Path) -> None:
    refused = trust(tmp_path, "0" * 40)
    assert refused.returncode == 1
    assert f"has another fingerprint than {KEY_FINGERPRINT}" in refused.stderr
    assert not Path(f"{tmp_path}{packages.KEYRING}").exists()


def test_only_driver_and_kernel_are_held() -> None:
    assert packages.hold({"curl", "cuda-toolkit-13-0"}, set(), installing=False) == []
    for name in ("linux-image-amd64", "libnvidia-ml1", "nvidia-kernel-open-dkms"):
        assert packages.hold({name}, set(), installing=False) != []


def test_the_toolkit_is_named_with_its_version_and_without_a_driver() -> None:
    assert toolkit.apt_package("13.0.3") == "cuda-toolkit-13-0=13.0.3-*"
    assert toolkit.apt_package("12.9") == "cuda-toolkit-12-9"


def apt_plan(tmp_path: Path, plan: str) -> subprocess.CompletedProcess[str]:
    """Run the check of the toolkit's package with an apt-get that would do `plan`."""
    (tmp_path / "apt-get").write_text(f"#!/bin/sh\necho '{plan}'\n")
    (tmp_path / "apt-get").chmod(0o755)
    command = packages.install_toolkit("cuda-toolkit-13-0", set())[1]
    path = f"{tmp_path}:/usr/bin:/bin"
    return subprocess.run(["sh", "-c", command], env={"PATH": path}, capture_output=True, text=True, check=False)


def test_a_toolkit_that_brings_a_driver_is_refused(tmp_path: Path) -> None:
    assert apt_plan(tmp_path, "Inst cuda-nvcc-13-0 (13.0.88-1)").returncode == 0
    refused = apt_plan(tmp_path, "Inst nvidia-driver-cuda (580.82.07-1)")
    assert refused.returncode == 1
    assert "brings this driver, expected the toolkit alone" in refused.stderr


# Host settings


def test_nothing_is_owned_unless_asked_for() -> None:
    assert host_settings.files(settings()) == []
    assert host_settings.effects(settings(), live(), set()) == []
    assert host_settings.reboot_reasons(settings(), live(loaded_driver="", installed_driver="")) == []


def test_each_setting_is_a_file_with_its_text() -> None:
    wanted = settings(
        driver="manage",
        uvm_disable_hmm=True,
        sysctl={"vm.swappiness": 0, "kernel.numa_balancing": 0},
        boot_parameters=["iommu=pt", "pcie_aspm=off"],
        power_limit_watts=450,
    )
    text = {file.path: file.content for file in host_settings.files(wanted)}
    assert set(text) == set(host_settings.PATHS)
    assert "blacklist nouveau" in text[NOUVEAU]
    assert text[UVM].endswith("options nvidia_uvm uvm_disable_hmm=1\n")
    assert text[SYSCTL].endswith("kernel.numa_balancing = 0\nvm.swappiness = 0\n")
    assert text[GRUB].endswith('GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX iommu=pt pcie_aspm=off"\n')
    assert "ExecStart=nvidia-smi --power-limit=450\n" in text[POWER]


def test_what_an_interrupted_run_left_without_effect_is_put_in_force() -> None:
    booted = settings(boot_parameters=["iommu=pt"])
    assert host_settings.effects(booted, live(stale_boot=True), set()) == ["update-grub"]
    managed = settings(driver="manage")
    assert host_settings.effects(managed, live(stale_initramfs=True), set()) == ["update-initramfs -u"]
    owned = settings(sysctl={"vm.swappiness": 0})
    assert host_settings.effects(owned, live(sysctl={"vm.swappiness": "60"}), set()) == [
        f"sysctl --quiet --load={SYSCTL}"
    ]
    assert host_settings.effects(owned, live(sysctl={"vm.swappiness": "0"}), set()) == []


def test_a_power_limit_changed_by_hand_is_put_back() -> None:
    wanted = settings(power_limit_watts=450)
    assert host_settings.effects(wanted, live(power_limits=(450.0,) * 8), set()) == []
    commands = host_settings.effects(wanted, live(power_limits=(450.0,) * 7 + (600.0,)), set())
    assert commands[-1] == "systemctl restart slipway-power-limit.service"


def test_what_is_no_longer_declared_loses_its_effect() -> None:
    assert "systemctl daemon-reload" in host_settings.effects(settings(), live(), {POWER})
    assert host_settings.effects(settings(), live(), {GRUB}) == ["update-grub"]


@pytest.mark.parametrize(
    ("variables", "changes", "reason"),
    [
        (
            {"driver": "manage"},
            {"loaded_driver": "580.65.06"},
            "driver 580.82.07 is installed, but 580.65.06 is loaded",
        ),
        ({"driver": "manage"}, {"loaded_driver": ""}, "driver 580.82.07 is installed, but none is loaded"),
        ({"boot_parameters": ["iommu=pt", "quiet"]}, {}, "the kernel was booted without iommu=pt"),
        ({"uvm_disable_hmm": True}, {}, "nvidia-uvm was loaded without uvm_disable_hmm=1"),
    ],
)
def test_a_reboot_has_a_reason(variables: dict[str, object], changes: dict[str, object], reason: str) -> None:
    assert host_settings.reboot_reasons(settings(**variables), live(**changes)) == [reason]


def test_a_host_as_declared_is_not_rebooted() -> None:
    wanted = settings(driver="manage", boot_parameters=["quiet"], uvm_disable_hmm=True)
    assert host_settings.reboot_reasons(wanted, live(hmm_disabled=True)) == []


@pytest.mark.parametrize(
    ("wanted", "seen", "command"),
    [
        (True, "disabled inactive", "systemctl enable --now --quiet x"),
        (True, "enabled active", None),
        (True, "static active", None),
        (True, "disabled active", "systemctl enable --now --quiet x"),
        (False, "enabled active", "systemctl disable --now --quiet x"),
        (False, "enabled inactive", "systemctl disable --now --quiet x"),
        (False, "", None),
        (None, "disabled inactive", None),
    ],
)
def test_a_service_is_only_touched_when_it_differs(wanted: bool | None, seen: str, command: str | None) -> None:
    assert host_settings.service("x", wanted, seen) == ([command] if command else [])


# Versions


@pytest.mark.parametrize(
    ("nvcc", "torch", "driver", "fits"),
    [
        ("13.0", "13.0", "580.82.07", True),
        ("13.2", "13.0", "610.43.02", True),
        ("13.0", "13.0", None, True),
        ("12.9", "13.0", "580.82.07", False),
        ("13.0", "12.8", "580.82.07", False),
        ("13.0", "13.0", "570.124.06", False),
        ("13.0", "13.0", "", False),
        ("", "13.0", "580.82.07", False),
    ],
)
def test_nvcc_torch_and_driver_are_of_one_major_version(
    nvcc: str, torch: str, driver: str | None, fits: bool
) -> None:
    assert (toolkit.disagreement(nvcc, torch, driver) is None) is fits


def test_a_disagreement_names_all_three_versions() -> None:
    sentence = toolkit.disagreement("12.9", "13.0", "570.124.06") or ""
    assert all(version in sentence for version in ("12.9", "13.0", "570.124.06"))
    assert "expected one major version: set `cuda_toolkit_version`" in sentence


# The toolkit from PyPI


def fake_release(folder: Path) -> Path:
    """A release whose toolkit has the files that NVIDIA's packages have, empty."""
    toolkit_folder = folder / "lib/python3.11/site-packages/nvidia/cu13"
    (toolkit_folder / "bin").mkdir(parents=True)
    (toolkit_folder / "lib").mkdir()
    (toolkit_folder / "bin/nvcc").write_text("#!/bin/sh\n")
    (toolkit_folder / "bin/nvcc").chmod(0o755)
    for name in ("libcudart.so.13", "libcublas.so.13"):
        (toolkit_folder / "lib" / name).touch()
    return folder


def complete(release: Path) -> subprocess.CompletedProcess[str]:
    program = toolkit.complete(str(release), "13.0.3")
    return subprocess.run(["sh", "-c", program], capture_output=True, text=True, check=False)


def test_the_toolkit_of_a_release_is_completed_and_again_after_damage(tmp_path: Path) -> None:
    release = fake_release(tmp_path)
    assert complete(release).returncode == 0
    home = Path(toolkit.home(settings(), str(release)))
    assert (home / "bin/nvcc").is_file()
    assert (home / "lib64/libcudart.so").resolve().name == "libcudart.so.13"
    assert (home / "lib64/libcublas.so").exists()
    stub = home / "lib64/stubs/libcuda.so"
    assert b"libcuda.so.1" in stub.read_bytes()
    stub.unlink()
    (home / "lib64").unlink()
    assert complete(release).returncode == 0
    assert (home / "lib64/stubs/libcuda.so").exists()
    assert complete(release).returncode == 0


def test_a_release_without_nvcc_is_told(tmp_path: Path) -> None:
    done = complete(tmp_path)
    assert done.returncode == 1
    assert "expected one from the release's lock" in done.stderr


def test_where_the_toolkit_is() -> None:
    assert toolkit.home(settings(), "/opt/r") == "/opt/r/cuda"
    assert toolkit.home(settings(toolkit="apt"), "/opt/r") == "/usr/local/cuda-13.0"
    assert toolkit.home(settings(toolkit="present", home="/opt/cuda"), "/opt/r") == "/opt/cuda"
