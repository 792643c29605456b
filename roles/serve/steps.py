"""The steps of a switch, each of which proves what it did or says why it could not."""

import json
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from pyinfra.api.host import Host

from roles.credentials import exported
from roles.files import File, write
from roles.paths import STATE
from roles.remote import RemoteError, attempt, run
from roles.serve import programs
from roles.serve.candidate import Candidate
from roles.serve.command import served_name
from roles.serve.deadline import Deadline
from roles.serve.failure import Explanation, explain
from roles.serve.good import GOOD, GOOD_HISTORY, Acceptance
from roles.serve.keys import API_KEY
from roles.serve.start import LATE
from roles.serve.unit import TRIED, UNITS

RELEASE_LIMIT: Final = 60
"""Seconds that a driver may take to give the memory of ended processes back."""

LAST_FAILURE: Final = f"{STATE}/last-failure.txt"
"""Marks a host that does not serve what was declared; `tests/host` shows it."""


class SwitchError(RuntimeError):
    """A step of the switch, or its proof, failed; the text says why."""


def stop(host: Host, units: Sequence[str]) -> None:
    """Stop units: running requests are finished first, then the whole control group ends."""
    if units:
        host.log(f"stopping {', '.join(units)}")
        run(host, f"systemctl stop {shlex.join(units)}")


def check_released(host: Host, candidate: Candidate, units: Sequence[str]) -> None:
    """The stopped units' processes are gone, the GPUs' memory is back, the port is free."""
    gpus = "" if candidate.profile.gpus == "all" else "--id=" + ",".join(map(str, candidate.profile.gpus))
    query = f"nvidia-smi {gpus} --query-compute-apps=pid,process_name,used_memory --format=csv,noheader"
    program = f"""
left() {{
    for unit in {shlex.join(units)}; do
        find /sys/fs/cgroup -path "*/$unit/cgroup.procs" -exec cat {{}} + 2>/dev/null \\
            | sed "s/^/process of $unit: /"
    done
    [ -e /dev/nvidiactl ] && {query} | sed 's/^/on a GPU: /'
    ss --no-header --listening --tcp --numeric 'sport = :{candidate.command.port}' | sed 's/^/on the port: /'
}}
for second in $(seq {RELEASE_LIMIT * 5}); do
    [ -z "$(left)" ] && exit 0
    sleep 0.2
done
left
exit 1"""
    try:
        run(host, program)
    except RemoteError as left:
        raise SwitchError(
            f"{RELEASE_LIMIT} s after the stop there is left, so that {candidate.profile.name} cannot start:\n{left}"
        ) from None


def note_failure(host: Host, candidates: Sequence[Candidate], reason: str) -> None:
    """Leave on the host why the last switch failed, for whoever looks at it next; an accepted switch removes it."""
    names = ", ".join(candidate.profile.name for candidate in candidates)
    text = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S UTC}: the switch to {names} failed: {reason}\n"
    for command in write(File(LAST_FAILURE, text)):
        run(host, command)


def accept(host: Host, candidates: Sequence[Candidate], others: Sequence[str]) -> None:
    """Record the candidates as good and start them, and nothing else, at boot."""
    acceptance = Acceptance(
        at=datetime.now(UTC), profiles={c.profile.name: c.command.fingerprint for c in candidates}
    )
    units = [candidate.unit_name for candidate in candidates]
    others_kept = " ".join(f"! -name {shlex.quote(unit)}" for unit in units)
    # The history is written first, as the disk may be full, and takes effect last. What a crash cut off ends a line.
    new = f"{GOOD_HISTORY}.new"
    line = shlex.quote(acceptance.line())
    history = f'{{ cat {GOOD_HISTORY}; [ -z "$(tail -c 1 {GOOD_HISTORY})" ] || echo; echo {line}; }} > {new}'
    run(
        host,
        f"""
install -d {GOOD} && touch {GOOD_HISTORY} && {history} &&
{_copy(units, TRIED, UNITS)} && {_copy(units, UNITS, GOOD)} && {_END_TRIAL} && {_enable_only(units, others)} &&
sync {new} {GOOD}/* {UNITS}/sglang-*.service && mv {new} {GOOD_HISTORY} && rm -f {LAST_FAILURE} &&
find {GOOD} -type f {others_kept} -delete""",
    )


def put_back(host: Host, units: Sequence[str]) -> None:
    """The unit files of these units as they were when they were accepted; nothing is tried any more.

    On a full disk they stay as they are: another file of the same server is better than none.
    """
    run(host, f"({_copy(units, GOOD, UNITS)})\n{_END_TRIAL}")


_END_TRIAL: Final = f"rm -f {TRIED}/sglang-*.service && systemctl daemon-reload"


def enable_only(host: Host, units: Sequence[str], others: Sequence[str]) -> None:
    """Start these units at boot, and not the others."""
    run(host, _enable_only(units, others))


def _enable_only(units: Sequence[str], others: Sequence[str]) -> str:
    disable = f"systemctl disable --quiet {shlex.join(others)} && " if others else ""
    return f"{disable}systemctl enable --quiet {shlex.join(units)}"


def _copy(units: Sequence[str], source: str, target: str) -> str:
    """A program that copies what is there and differs, each by a rename: a crash or a full disk leaves the old."""
    return f"""for unit in {shlex.join(units)}; do
    [ ! -e {source}/$unit ] || cmp -s {source}/$unit {target}/$unit && continue
    cp --preserve=mode {source}/$unit {target}/.$unit.new && mv {target}/.$unit.new {target}/$unit || exit 1
done"""


def start(host: Host, candidate: Candidate, deadline: Deadline) -> None:
    """Start the candidate's unit as declared, and wait until it answers; what a boot would start stays as it is."""
    for command in write(File(f"{TRIED}/{candidate.unit_name}", candidate.unit.content)):
        run(host, command)
    run(host, "systemctl daemon-reload")
    host.log(f"starting {candidate.unit_name}, within {deadline.sentence}")
    _follow(host, candidate.unit_name, str(deadline.seconds))


def start_unit(host: Host, unit: str) -> None:
    """Start a unit as it is, or join its start under way, and wait until it answers, as long as its file says."""
    host.log(f"starting {unit}")
    _follow(host, unit, f"$(systemctl cat {unit} | sed -n 's/^TimeoutStartSec=//p' | tail -n 1)")


def _follow(host: Host, unit: str, limit: str) -> None:
    """Start a unit and follow it until its server answers. Raises SwitchError with the reason why it never will."""
    # A start under way began before now.
    program = f"""
systemctl reset-failed {unit} 2>/dev/null
[ "$(systemctl show --property=ActiveState --value {unit})" = activating ] && {_began(unit)} || date +%s.%N"""
    since = run(host, program).strip()
    started, told = attempt(host, f'{programs.START} {unit} "{limit}"', show=True)
    if not started:
        reason = why_it_failed(host, unit, since, late=told.endswith(LATE))
        attempt(host, f"systemctl stop {unit}")  # or it would start for ever
        raise SwitchError(f"{unit} did not start\n{reason}")


def _began(unit: str) -> str:
    """A program that prints when the unit was last started, in seconds of the host's clock."""
    return f'date +%s.%N -d "$(systemctl show --timestamp=us+utc --property=InactiveExitTimestamp --value {unit})"'


def why_it_failed(host: Host, unit: str, since: str, *, late: bool = False) -> str:
    """The cause that the journal shows, and the journal's end.

    `since`: seconds of the host's clock; `late`: nobody waits for it any longer.
    """
    explanation, journal = _explained(host, unit, since, late=late)
    return f"{explanation}\nthe end of its journal:\n{_last_lines(journal)}"


def _explained(host: Host, unit: str, since: str, *, late: bool = False) -> tuple[Explanation, str]:
    """What the journal since then explains, and the journal."""
    _, status = attempt(host, f"systemctl show --property=Result,ExecMainStatus {unit}")
    _, journal = attempt(host, f"journalctl --sync; journalctl --unit={unit} --since=@{since} --output=cat")
    shown = dict(line.split("=", 1) for line in status.splitlines() if "=" in line)
    exit_status = shown.get("ExecMainStatus", "")
    explanation = explain(
        journal,
        result="timeout" if late else shown.get("Result", ""),
        exit_status=int(exit_status) if exit_status.isdigit() else None,
    )
    return explanation, journal


def _last_lines(journal: str, number: int = 30) -> str:
    return "\n".join(f"  {line}" for line in journal.splitlines()[-number:])


def smoke(host: Host, candidate: Candidate) -> Mapping[str, object]:
    """The server's answers are real. Returns what it reports of its memory, as SGLang names it."""
    host.log("asking for real answers")
    settings = candidate.profile.smoke
    options = {
        "readable": settings.readable,
        "requests": settings.requests,
        "concurrency": settings.concurrency,
    }
    model = served_name(candidate.profile)
    words = ["python3", programs.SMOKE.path, candidate.url, model, json.dumps(options)]
    key = exported({"SLIPWAY_API_KEY": API_KEY}) if API_KEY in candidate.keys else ""
    since = run(host, _began(candidate.unit_name)).strip()
    _, output = attempt(host, key + shlex.join(words))
    try:
        verdict = json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        raise SwitchError(f"{candidate.profile.name}: the smoke test did not end: {output}") from None
    if not verdict["passed"]:
        explanation, _ = _explained(host, candidate.unit_name, since)
        # A server that answers wrongly may see no fault in it.
        why = [f"its journal says:\n{explanation}"] if explanation.evidence else []
        reasons = [f"{candidate.profile.name} does not answer as it must:", *verdict["reasons"], *why]
        raise SwitchError("\n".join(reasons))
    host.log(f"{settings.requests} short requests and others answered in {verdict['seconds']} s")
    return dict(verdict["memory"])
