"""A small signed apt repository with NVIDIA's names, made on a lab host on the spot.

The packages are empty but for what the role cuda looks at; apt, gpg and the signatures are real. The toolkit of the
host's release stands in for that of NVIDIA's package.
"""

from typing import Final

from roles.cuda.toolkit import PROOF
from tests.lab.recorded import DRIVER
from tests.lab.recorded.conftest import RELEASE

FOLDER: Final = "/srv/nvidia"

MAKE: Final = f"""
set -e
apt-get update -qq && apt-get install -qq -y gpg apt-utils >/dev/null
rm -rf {FOLDER} && mkdir -p {FOLDER} /tmp/packages && cd /tmp/packages
pack() {{  # name, version, what it depends on; files are in ./$1
    mkdir -p "$1/DEBIAN"
    printf 'Package: %s\\nVersion: %s\\nArchitecture: amd64\\nMaintainer: lab\\nDescription: lab\\n' "$1" "$2" \\
        >"$1/DEBIAN/control"
    [ -z "$3" ] || echo "Depends: $3" >>"$1/DEBIAN/control"
    dpkg-deb --build --root-owner-group "$1" {FOLDER} >/dev/null
}}
mkdir -p cuda-toolkit-13-0/usr/local
ln -sfn {RELEASE.directory}/cuda cuda-toolkit-13-0/usr/local/cuda-13.0
pack cuda-toolkit-13-0 13.0.3-1
pack cuda-toolkit-12-9 12.9.1-1 nvidia-driver-cuda
for name in nvidia-driver-pinning-580 nvidia-driver-cuda nvidia-fabricmanager; do pack $name {DRIVER}-1; done
for name in linux-headers-amd64 "linux-headers-$(uname -r)" dkms; do pack "$name" 99; done
mkdir -p nvidia-kernel-open-dkms/usr/sbin
printf '#!/bin/sh\\necho {DRIVER}\\n' >nvidia-kernel-open-dkms/usr/sbin/modinfo
chmod 755 nvidia-kernel-open-dkms/usr/sbin/modinfo
pack nvidia-kernel-open-dkms {DRIVER}-1
mkdir -p nvidia-persistenced/etc/systemd/system
printf '[Service]\\nExecStart=/bin/sleep infinity\\n[Install]\\nWantedBy=multi-user.target\\n' \\
    >nvidia-persistenced/etc/systemd/system/nvidia-persistenced.service
pack nvidia-persistenced {DRIVER}-1
cd {FOLDER}
export GNUPGHOME=/tmp/gnupg; mkdir -p -m 700 $GNUPGHOME
gpg --batch --quiet --list-keys lab >/dev/null 2>&1 || \\
    gpg --batch --quiet --passphrase '' --quick-generate-key lab default default never
apt-ftparchive packages . >Packages && apt-ftparchive release . >/tmp/Release && mv /tmp/Release Release
gpg --batch --yes --clearsign -o InRelease Release && gpg --armor --export lab
"""
"""A shell program that makes it and prints its public key."""

UNDO: Final = f"""
apt-mark unhold 'nvidia-*' 'linux-headers-*'
apt-get purge -qq -y --allow-change-held-packages '^cuda-toolkit' '^nvidia-' '^linux-headers' dkms
rm -rf {FOLDER} /etc/apt/sources.list.d/slipway-nvidia.sources /etc/apt/keyrings/slipway-nvidia.asc \\
    /etc/modprobe.d/slipway-* /etc/default/grub.d /boot/grub {PROOF}
apt-get update -qq
"""
"""A shell program that takes away what the role cuda brings from it."""
