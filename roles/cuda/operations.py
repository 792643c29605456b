"""What cuda changes."""

from collections.abc import Generator, Sequence
from typing import Any

from pyinfra import logger
from pyinfra.api.command import FunctionCommand, StringCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from roles.cuda.facts import CudaFacts, cuda_facts
from roles.cuda.host_settings import reboot_reasons
from roles.cuda.reboot import reboot
from roles.cuda.settings import CudaSettings
from roles.cuda.toolkit import disagreement, home, prove
from roles.refusal import Refusal
from roles.remote import RemoteError, attempt


@operation()
def commands_run(commands: Sequence[str]) -> Generator[StringCommand]:
    """Run what was found to be needed.

    + commands: none if the host is right already
    """
    if not commands:
        host.noop("as declared")
    for command in commands:
        yield StringCommand(command)


@operation()
def rebooted(settings: CudaSettings, release: str, expected: bool) -> Generator[Any]:
    """Reboot if the running kernel is not what the settings ask for, wait for the host, and look again.

    + settings: the role's
    + release: path of the release
    + expected: whether what was seen, or what this run changes, can call for it
    """
    if not expected:
        host.noop("the running kernel is as declared")
        return
    yield FunctionCommand(_reboot, (settings, release), {})


@operation()
def toolkit_proved(settings: CudaSettings, release: str, capability: str, expected: bool) -> Generator[Any]:
    """Compile for the host's GPUs and look into the binary, unless this very toolkit was proved before.

    + settings: the role's
    + release: path of the release
    + capability: the compute capability to compile for, unless the GPUs themselves tell another
    + expected: whether what was seen, or what this run changes, calls for it
    """
    if not expected:
        host.noop("proved before")
        return
    yield FunctionCommand(_prove, (settings, release, capability), {})


def _look(target: Host, settings: CudaSettings, release: str) -> CudaFacts:
    return cuda_facts(target, settings, home(settings, release), release)


def _reboot(state: State, host: Host, settings: CudaSettings, release: str) -> bool:
    """Only now, when the operations before this one are done, can it be seen whether there is a reason."""
    reasons = " and ".join(reboot_reasons(settings, _look(host, settings, release).live))
    if not reasons:
        return True
    if settings.reboot != "allow":
        return _fail(
            host,
            f"a reboot is needed, because {reasons}, expected `cuda_reboot: allow` for this run to do it: "
            "reboot the host yourself, or allow it, and run again.",
        )
    host.log(f"rebooting, because {reasons}")
    try:
        reboot(host)
    except RemoteError as error:
        return _fail(
            host,
            f"the host was rebooted, because {reasons}, and {error}, expected it back: look at its console.",
        )
    except Refusal as refusal:
        return _fail(host, str(refusal))
    host.log("the host is back")
    left = " and ".join(reboot_reasons(settings, _look(host, settings, release).live))
    return not left or _fail(
        host,
        f"after a reboot {left}, expected the reboot to change that: look for `nvidia` in `journalctl -k` and "
        "`dkms status`, and for the parameters in /boot/grub/grub.cfg.",
    )


def _prove(state: State, host: Host, settings: CudaSettings, release: str, capability: str) -> bool:
    facts = _look(host, settings, release)
    refused = disagreement(facts.toolkit.nvcc, facts.toolkit.torch, facts.driver_version)
    if refused:
        return _fail(host, refused)
    capability = next(iter(facts.capabilities), capability)  # this run may have brought the driver that tells it
    toolkit, proof = home(settings, release), facts.toolkit.proof(capability)
    done, output = attempt(host, prove(toolkit, release, capability, proof))
    return done or _fail(host, f"the CUDA toolkit at {toolkit} does not compile for {capability}: {output}")


def _fail(host: Host, sentence: str) -> bool:
    host.log(sentence, logger.error)
    return False
