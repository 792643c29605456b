"""Lab hosts that answer like hosts with GPUs. Simulated: see README.md beside this file."""

import shlex
from pathlib import Path
from typing import Final

from roles.observation import observed
from roles.preflight.parse import NO_ANSWER, P2P_MARK, TOPOLOGY_MARK
from tests.lab import hosts

SETS: Final = Path(__file__).parents[2] / "unit" / "data" / "hosts"
DRIVER: Final = "580.82.07"
"""The driver's version in the sets."""

_FOLDER: Final = "/run/recorded"
_AT_BOOT: Final = "/usr/local/lib/recorded"
_UNIT: Final = "/etc/systemd/system/recorded.service"

_FILES: Final = ("class", "current_link_speed", "current_link_width", "max_link_speed", "max_link_width", "numa_node")

_MOUNTS: Final = {
    "pci": "/sys/bus/pci/devices",
    "proc": "/proc/driver",
    "cmdline": "/proc/cmdline",
    "firmware": "/sys/firmware",
}
"""What a set has in its folder, and where the host shows it."""

_SMI: Final = f"""#!/bin/sh
case "$*" in
*compute-apps*) ;;
*--query-gpu=compute_cap,power.limit*) awk -F', ' 'NF > 9 {{ print $5 ", " $7 }}' {_FOLDER}/gpus ;;
*--query-gpu=compute_cap*) awk -F', ' 'NF > 9 {{ print $5 }}' {_FOLDER}/gpus ;;
*--query-gpu=driver_version*) awk -F', ' 'NF > 9 {{ print $6 }}' {_FOLDER}/gpus ;;
*--query-gpu*) cat {_FOLDER}/gpus ;;
*-p2p*) cat {_FOLDER}/p2p ;;
*topo*) cat {_FOLDER}/topology ;;
esac
"""

_BOOT_PROGRAMS: Final = {
    "bin/update-grub": """#!/bin/sh
mkdir -p /boot/grub
find /etc/default/grub.d -name '*.cfg' -exec cat {} + >/boot/grub/grub.cfg
""",
    "bin/update-initramfs": """#!/bin/sh
mkdir -p /boot && touch "/boot/initrd.img-$(uname -r)"
""",
}
"""What a host that boots a kernel of its own has."""

_BOOT_UNIT: Final = f"""\
[Unit]
Description=Answer like another host
Before=ssh.service
[Service]
Type=oneshot
ExecStart=/bin/sh {_AT_BOOT}
[Install]
WantedBy=multi-user.target
"""


def become(host: str, name: str, driver: str = DRIVER) -> None:
    """Make the lab host answer as the set `name` until it boots again, or as itself for `none`.

    `driver` takes the place of the driver's version in the set.
    """
    forget = f"umount {' '.join(_MOUNTS.values())}; systemctl disable recorded; rm -f {_AT_BOOT} {_UNIT}"
    links = f"find /usr/local/bin -lname '{_FOLDER}/*' -delete; rm -rf {_FOLDER}"
    hosts.run(host, f"({forget}) 2>/dev/null; {links}")
    if name != "none":
        hosts.run(host, _script(name, driver))


def boot_as(host: str, name: str, driver: str = DRIVER) -> None:
    """Make the lab host answer as the set `name` from its next boot on."""
    files = {_AT_BOOT: _script(name, driver), _UNIT: _BOOT_UNIT}
    put = [f"printf %s {shlex.quote(text)} >{path}" for path, text in files.items()]
    hosts.run(host, f"{' && '.join(put)} && systemctl enable --quiet recorded")


def _script(name: str, driver: str) -> str:
    """Shell commands that make a host answer as the set."""
    seen = observed((SETS / f"{name}.txt").read_text().replace(DRIVER, driver).splitlines())
    tree = _tree(seen)
    folders = {f"{_FOLDER}/pci", f"{_FOLDER}/firmware", "/usr/local/bin", *(str(Path(path).parent) for path in tree)}
    files = [f"printf %s {shlex.quote(text)} >{path}" for path, text in tree.items()]
    slots = [line.split("|")[0] for line in seen["pci"] if "|" in line]
    links = [f"ln -s {_FOLDER}{slot} {_FOLDER}/pci/{slot.rsplit('/', 1)[-1]}" for slot in slots]
    mounts = [f"mount --bind {_FOLDER}/{own} {place}" for own, place in _MOUNTS.items()]
    return "\n".join(
        [
            f"set -e\nmkdir -p {' '.join(sorted(folders))}",
            *files,
            *links,
            f"chmod 755 {_FOLDER}/bin/*\nln -sf {_FOLDER}/bin/* /usr/local/bin/",
            *mounts,
        ]
    )


def _tree(seen: dict[str, list[str]]) -> dict[str, str]:
    """Files on the host, by path, from the lines of a set."""
    gpus, p2p, topology = _split(seen["nvidia-smi"])
    driver, host = (dict(line.split("=", 1) for line in seen[name] if "=" in line) for name in ("driver", "host"))
    files = {"gpus": gpus, "p2p": p2p, "topology": topology, "proc/nvidia/version": driver["loaded"]}
    files |= {"cmdline": host["boot_parameters"] + "\n", **_BOOT_PROGRAMS}
    if host["secure_boot"].strip() == "1":
        files["firmware/efi/efivars/SecureBoot-8be4df61"] = "....\1"  # four bytes of attributes, then the value
    if driver["loaded"]:
        hangs = NO_ANSWER in seen["nvidia-smi"]
        files["bin/nvidia-smi"] = "#!/bin/sh\nexec sleep infinity\n" if hangs else _SMI
        files["bin/modinfo"] = f"#!/bin/sh\necho {driver['installed']}\n"
    files["bin/lspci"] = (
        "#!/bin/sh\nprintf '"
        + "".join(f"{bridge} PCI bridge\\n\\t\\tACSCtl:\\tSrcValid+ ReqRedir+\\n" for bridge in seen["acs"])
        + "'\n"
    )
    for line in seen["pci"]:
        path, *values = line.split("|")
        files[f"{path}/vendor"] = "0x10de\n"
        files |= {f"{path}/{file}": f"{value}\n" for file, value in zip(_FILES, values, strict=False)}
        files[f"{path}/iommu_group/type"] = values[6] + "\n"
        files[f"{path}/resource"] = values[7].replace(";", "\n")
    return {f"{_FOLDER}/{path.lstrip('/')}": text for path, text in files.items()}


def _split(lines: list[str]) -> tuple[str, str, str]:
    text = "\n".join(lines)
    gpus, _, rest = text.partition(P2P_MARK)
    p2p, _, topology = rest.partition(TOPOLOGY_MARK)
    return gpus.strip() + "\n", p2p.lstrip("\n"), topology.lstrip("\n")
