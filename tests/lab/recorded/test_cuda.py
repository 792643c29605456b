"""The apt way of the role cuda, on a lab host: a small signed repository with NVIDIA's names, made on the spot.

The packages are empty but for what the role looks at, and the GPUs are recorded texts; apt, gpg, the signatures and
the compiler are real: the toolkit of the release stands in for NVIDIA's package.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.cuda.toolkit import PROOF
from tests.lab import hosts
from tests.lab.conftest import pyinfra
from tests.lab.recorded import become
from tests.lab.recorded.conftest import HOST, RELEASE, write_inventory

REPOSITORY = "/srv/nvidia"

MAKE_REPOSITORY = f"""
set -e
apt-get update -qq && apt-get install -qq -y gpg apt-utils >/dev/null
rm -rf {REPOSITORY} && mkdir -p {REPOSITORY} /tmp/packages && cd /tmp/packages
pack() {{  # name, version; files are in ./$1
    mkdir -p "$1/DEBIAN"
    printf 'Package: %s\\nVersion: %s\\nArchitecture: amd64\\nMaintainer: lab\\nDescription: lab\\n' "$1" "$2" \\
        >"$1/DEBIAN/control"
    [ -z "$3" ] || echo "Depends: $3" >>"$1/DEBIAN/control"
    dpkg-deb --build --root-owner-group "$1" {REPOSITORY} >/dev/null
}}
mkdir -p cuda-toolkit-13-0/usr/local
ln -sfn {RELEASE.directory}/cuda cuda-toolkit-13-0/usr/local/cuda-13.0
pack cuda-toolkit-13-0 13.0.3-1
pack cuda-toolkit-12-9 12.9.1-1 nvidia-driver-cuda
for name in nvidia-driver-pinning-580 nvidia-driver-cuda nvidia-fabricmanager; do pack $name 580.82.07-1; done
for name in linux-headers-amd64 "linux-headers-$(uname -r)" dkms; do pack "$name" 99; done
mkdir -p nvidia-kernel-open-dkms/usr/local/bin nvidia-kernel-open-dkms/usr/local/sbin
printf '#!/bin/sh\\necho 580.82.07\\n' >nvidia-kernel-open-dkms/usr/local/bin/modinfo
printf '#!/bin/sh\\nmkdir -p /boot; touch "/boot/initrd.img-$(uname -r)"\\n' \\
    >nvidia-kernel-open-dkms/usr/local/sbin/update-initramfs
chmod 755 nvidia-kernel-open-dkms/usr/local/*bin/*
pack nvidia-kernel-open-dkms 580.82.07-1
mkdir -p nvidia-persistenced/etc/systemd/system
printf '[Service]\\nExecStart=/bin/sleep infinity\\n[Install]\\nWantedBy=multi-user.target\\n' \\
    >nvidia-persistenced/etc/systemd/system/nvidia-persistenced.service
pack nvidia-persistenced 580.82.07-1
cd {REPOSITORY}
export GNUPGHOME=/tmp/gnupg; mkdir -p -m 700 $GNUPGHOME
gpg --batch --quiet --list-keys lab >/dev/null 2>&1 || \\
    gpg --batch --quiet --passphrase '' --quick-generate-key lab default default never
apt-ftparchive packages . >Packages && apt-ftparchive release . >/tmp/Release && mv /tmp/Release Release
gpg --batch --yes --clearsign -o InRelease Release && gpg --armor --export lab
"""

UNDO = f"""
apt-mark unhold 'nvidia-*' 'linux-headers-*' >/dev/null 2>&1
apt-get purge -qq -y --allow-change-held-packages '^cuda-toolkit' '^nvidia-' '^linux-headers' dkms >/dev/null 2>&1
rm -f /etc/apt/sources.list.d/slipway-nvidia.sources /etc/apt/keyrings/slipway-nvidia.asc /etc/modprobe.d/slipway-* \
    {PROOF}
apt-get update -qq
"""


@pytest.fixture(scope="module")
def key(host_with_release: str) -> Iterator[str]:
    """The repository's key; the repository lasts as long as the tests."""
    hosts.run(HOST, UNDO, check=False)
    yield hosts.run(HOST, MAKE_REPOSITORY)
    become(HOST, "none")
    hosts.run(HOST, UNDO, check=False)


@pytest.fixture
def inventory(tmp_path: Path, key: str) -> str:
    """The lab host, with the repository in place of NVIDIA's."""
    mirror = {"cuda_apt_mirror": f"file://{REPOSITORY}", "cuda_apt_key": key}
    return write_inventory(tmp_path, hardware={"gpus": 8}, **mirror)


def deploy(inventory: str, **variables: str) -> tuple[int, str]:
    """Run the role; returns exit code and output."""
    data = [word for name, value in variables.items() for word in ("--data", f"{name}={value}")]
    done = pyinfra("-y", inventory, "roles.cuda.tasks.cuda", *data)
    return done.returncode, done.stdout + done.stderr


def changes(output: str) -> list[str]:
    """The operations that did not say `No changes`."""
    parts = output.split("Starting operation: ")[1:]
    return [part.splitlines()[0].strip() for part in parts if "No changes" not in part]


def test_the_toolkit_comes_signed_without_a_driver_and_compiles(inventory: str) -> None:
    become(HOST, "rtx_pro_6000_x8")
    code, output = deploy(inventory, cuda_toolkit="apt")
    assert code == 0, output
    assert "/usr/local/cuda-13.0" in hosts.run(HOST, f"cat {PROOF}")
    assert hosts.run(HOST, "dpkg-query -W 'nvidia-*' 2>/dev/null; true").strip() == ""
    code, output = deploy(inventory, cuda_toolkit="apt")
    assert (code, changes(output)) == (0, [])


def test_a_toolkit_that_would_bring_a_driver_is_refused(inventory: str) -> None:
    become(HOST, "rtx_pro_6000_x8")
    code, output = deploy(inventory, cuda_toolkit="apt", cuda_toolkit_version='"12.9"')
    assert code == 1
    assert "expected the toolkit alone" in output
    assert hosts.run(HOST, "dpkg-query -W 'nvidia-*' 2>/dev/null; true").strip() == ""


def test_the_driver_is_installed_and_held_and_the_reboot_is_left_to_the_user(inventory: str) -> None:
    become(HOST, "bare")
    code, output = deploy(inventory, cuda_driver="manage")
    assert code == 1, output
    assert "a reboot is needed, because driver 580.82.07 is installed, but none is loaded" in output
    held = hosts.run(HOST, "apt-mark showhold").split()
    assert {"nvidia-driver-cuda", "nvidia-kernel-open-dkms", "linux-headers-amd64"} <= set(held)
    assert "cuda-toolkit-13-0" not in held
    assert "nvidia-fabricmanager" not in hosts.run(HOST, "dpkg-query -W -f '${Package} ' 'nvidia-*'")

    become(HOST, "rtx_pro_6000_x8")  # as after that reboot
    code, output = deploy(inventory, cuda_driver="manage")
    assert code == 0, output
    assert hosts.run(HOST, "systemctl is-active nvidia-persistenced").strip() == "active"
    code, output = deploy(inventory, cuda_driver="manage")
    assert (code, changes(output)) == (0, [])
