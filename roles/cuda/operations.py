"""What cuda changes."""

from collections.abc import Generator, Sequence
from typing import Any, Final

from pyinfra import logger
from pyinfra.api.command import FunctionCommand, StringCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host
from pyinfra.operations import server

from roles.cuda.facts import CudaFacts, cuda_facts
from roles.cuda.host_settings import reboot_reasons
from roles.cuda.settings import CudaSettings
from roles.cuda.toolkit import disagreement, home, prove
from roles.remote import attempt

_REBOOT_SECONDS: Final = 1800
"""Large servers count and train their memory for many minutes."""


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
    yield FunctionCommand(_may_reboot, (settings, release), {})
    # From here on the run executes, and what the operations before this one did can be seen.
    if reboot_reasons(settings, _look(host, settings, release).live):
        yield from server.reboot._inner(reboot_timeout=_REBOOT_SECONDS)
        yield FunctionCommand(_is_rebooted, (settings, release), {})


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


def _may_reboot(state: State, host: Host, settings: CudaSettings, release: str) -> bool:
    reasons = reboot_reasons(settings, _look(host, settings, release).live)
    if not reasons or settings.reboot == "allow":
        return True
    return _fail(
        host,
        f"a reboot is needed, because {' and '.join(reasons)}, expected `cuda_reboot: allow` for this run to do it: "
        "reboot the host yourself, or allow it, and run again.",
    )


def _is_rebooted(state: State, host: Host, settings: CudaSettings, release: str) -> bool:
    reasons = reboot_reasons(settings, _look(host, settings, release).live)
    return not reasons or _fail(
        host,
        f"after a reboot {' and '.join(reasons)}, expected the reboot to change that: look for `nvidia` in "
        "`journalctl -k` and `dkms status`.",
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
