"""Lab hosts that answer like hosts with GPUs. Simulated: see README.md beside this file."""

import shlex
from pathlib import Path
from typing import Final

from roles.observation import Observation
from roles.preflight.parse import NO_ANSWER, P2P_MARK, TOPOLOGY_MARK
from tests.lab import hosts

SETS: Final = Path(__file__).parents[2] / "unit" / "data" / "hosts"
_FOLDER: Final = "/run/recorded"

_FILES: Final = ("class", "current_link_speed", "current_link_width", "max_link_speed", "max_link_width", "numa_node")

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


def become(host: str, name: str) -> None:
    """Make the lab host `host` answer as the set `name`, or as itself again for `none`."""
    _forget(host)
    if name == "none":
        return
    seen = Observation().process((SETS / f"{name}.txt").read_text().splitlines())
    files = "".join(
        f"mkdir -p $(dirname {path}) && printf %s {shlex.quote(text)} >{path}\n" for path, text in _tree(seen).items()
    )
    hosts.run(host, files)
    links = "".join(
        f"ln -s {_FOLDER}{line.split('|')[0]} {_FOLDER}/pci/{_slot(line)}; " for line in seen["pci"] if "|" in line
    )
    hosts.run(
        host,
        f"mkdir -p {_FOLDER}/pci {_FOLDER}/proc/nvidia; {links}"
        f"chmod 755 {_FOLDER}/bin/*; mkdir -p /usr/local/bin; ln -sf {_FOLDER}/bin/* /usr/local/bin/; "
        f"mount --bind {_FOLDER}/pci /sys/bus/pci/devices; mount --bind {_FOLDER}/proc /proc/driver",
    )


def _forget(host: str) -> None:
    hosts.run(
        host,
        "umount /sys/bus/pci/devices /proc/driver 2>/dev/null; "
        f"find /usr/local/bin -lname '{_FOLDER}/*' -delete; rm -rf {_FOLDER}",
        check=False,
    )


def _tree(seen: dict[str, list[str]]) -> dict[str, str]:
    """Files on the host, by path, from the lines of a set."""
    gpus, p2p, topology = _split(seen["nvidia-smi"])
    driver = dict(line.split("=", 1) for line in seen["driver"] if "=" in line)
    files = {"gpus": gpus, "p2p": p2p, "topology": topology, "proc/nvidia/version": driver["loaded"]}
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


def _slot(line: str) -> str:
    return line.split("|")[0].rsplit("/", 1)[-1]
