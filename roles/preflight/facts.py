"""Read the host, each time in one round trip: a shell program for each thing, each with an end."""

import shlex
from typing import Final, NamedTuple

from pyinfra.api.host import Host

from roles.observation import observe
from roles.preflight.exchange import PROOF, Exchange
from roles.preflight.host_facts import HostFacts
from roles.preflight.parse import GPU_QUERY, NO_ANSWER, P2P_MARK, TOPOLOGY_MARK, host_facts

SMI_SECONDS: Final = 60
"""Without persistence mode nvidia-smi initialises every GPU anew, some seconds for each of eight."""


def bounded(program: str, seconds: float) -> str:
    """A program that prints what `program` prints, or NO_ANSWER when that takes longer than `seconds`.

    `timeout` alone is not enough: a process that waits inside a wedged driver cannot be killed, and
    whoever waits for it, or holds its pipe, waits for ever. So it writes to a file, and the file is polled.
    """
    return f"""
answer=$(mktemp)
( timeout --signal=KILL {seconds} sh -c {shlex.quote(program)} </dev/null >"$answer" 2>&1
  echo $? >"$answer.status" ) >/dev/null 2>&1 &
left={int(seconds * 50) + 100}
until [ -s "$answer.status" ] || [ $left -le 0 ]; do sleep 0.02; left=$((left - 1)); done
case "$(cat "$answer.status")" in ""|137) echo '{NO_ANSWER}' ;; *) cat "$answer" ;; esac
rm -f "$answer" "$answer.status"
"""


NVIDIA_SMI: Final = f"""
command -v nvidia-smi >/dev/null || exit 0
nvidia-smi --query-gpu={",".join(GPU_QUERY)} --format=csv,noheader,nounits
echo; echo '{P2P_MARK}'
nvidia-smi topo -p2p r
echo; echo '{TOPOLOGY_MARK}'
nvidia-smi topo -m
"""

PCI: Final = """
for device in /sys/bus/pci/devices/*; do
    read -r vendor <"$device/vendor" && [ "$vendor" = 0x10de ] || continue
    printf '%s' "$(readlink -f "$device")"
    for file in class current_link_speed current_link_width max_link_speed max_link_width numa_node \\
        iommu_group/type; do
        value=; read -r value <"$device/$file"; printf '|%s' "$value"
    done
    printf '|%s\\n' "$(head -n 6 "$device/resource" | tr '\\n' ';')"
done
"""

DRIVER: Final = """
echo "loaded=$(head -n 1 /proc/driver/nvidia/version)"
echo "installed=$(modinfo -F version nvidia)"
echo "library=$(readlink -f "$(ldconfig -p | sed -n 's/.*libnvidia-ml\\.so\\.1 (.*=> //p' | head -n 1)")"
[ -d /sys/module/nouveau ] && echo nouveau=loaded
"""

ACS: Final = r"""
lspci -D -vvv | awk '/^[0-9a-f]/ { device = $1 } /ACSCtl:.*ReqRedir\+/ { print device }'
"""

HOST: Final = """
echo "kernel=$(uname -r)"
echo "boot_parameters=$(cat /proc/cmdline)"
echo "governors=$(cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor | sort -u | tr '\\n' ' ')"
echo "numa_balancing=$(cat /proc/sys/kernel/numa_balancing)"
echo "numa_nodes=$(ls -d /sys/devices/system/node/node[0-9]* | wc -l)"
echo "cpus=$(nproc --all)"
echo "memory_kib=$(sed -n 's/^MemTotal: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo)"
echo "shm_kib=$(df -k --output=size /dev/shm | tail -n 1)"
echo "disk_free_kib=$(df -k --output=avail /opt | tail -n 1)"
echo "locked_memory_kib=$(ulimit -l)"
echo "open_files=$(ulimit -n)"
echo "secure_boot=$(od -An -t u1 -j 4 -N 1 /sys/firmware/efi/efivars/SecureBoot-*)"
"""

PROGRAMS: Final = {
    "nvidia-smi": bounded(NVIDIA_SMI, SMI_SECONDS),
    "pci": PCI,
    "acs": ACS,
    "driver": DRIVER,
    "xids": "journalctl --dmesg --boot --quiet --no-pager --output=cat | grep -F 'NVRM: Xid' | tail -n 50",
    "host": HOST,
}


def read(host: Host) -> HostFacts:
    """The host as it is now."""
    return host_facts(observe(host, PROGRAMS))


class GpuUse(NamedTuple):
    """What must be known before the GPUs exchange values."""

    driver: str
    busy: bool
    """Whether any program computes on a GPU."""
    proofs: frozenset[str]
    """The conditions under which the GPUs have exchanged right values, as `Exchange.identity` writes them."""

    def proves(self, exchange: Exchange) -> bool:
        """Whether this very exchange has succeeded before."""
        return exchange.identity(self.driver) in self.proofs


def gpu_use(host: Host) -> GpuUse:
    """The GPUs as they are used now."""
    seen = observe(
        host,
        {
            "gpus": bounded(_smi("--query-gpu=driver_version"), SMI_SECONDS),
            "programs": bounded(_smi("--query-compute-apps=pid"), SMI_SECONDS),
            "proofs": f"cat {PROOF}",
        },
    )
    drivers = [line for line in seen["gpus"] if line[:1].isdigit()]
    return GpuUse(
        driver=drivers[0] if drivers else "",
        busy=any(line[:1].isdigit() for line in seen["programs"]),
        proofs=frozenset(seen["proofs"]),
    )


def _smi(query: str) -> str:
    return f"command -v nvidia-smi >/dev/null && nvidia-smi {query} --format=csv,noheader"
