"""Why a server did not start, or died: its journal and exit status, explained. Pure."""

import re
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from roles.documents import Document
from roles.serve.progress import Phase, progress

UNKNOWN: Final = "unknown"
"""The kind of a failure that no signature fits."""


class Explanation(NamedTuple):
    """What went wrong, in the words of the people who must put it right."""

    kind: str
    """Short and constant, to compare and to count: "memory fraction too low"."""
    cause: str
    advice: str
    evidence: str
    """The line of the journal that says so; empty where only systemd knows."""
    source: str

    def __str__(self) -> str:
        evidence = f"\n  evidence: {self.evidence}" if self.evidence else ""
        return f"{self.kind}: {self.cause}\n  advice: {self.advice}{evidence}"


class Signature(Document):
    """One entry of failures.yml, whose head says what the keys mean."""

    kind: str
    pattern: re.Pattern[str]
    cause: str
    advice: str
    source: str
    example: str
    consequence: bool = False


@cache
def signatures() -> tuple[Signature, ...]:
    """The catalogue: the more specific a kind, the earlier."""
    path = Path(__file__).with_name("failures.yml")
    return tuple(Signature.read(entry, path.name) for entry in yaml.safe_load(path.read_text()))


def explain(journal: str, *, result: str = "", exit_status: int | None = None) -> Explanation:
    """The explanation of a unit's failure.

    `journal`: what the unit and systemd logged since this start (`journalctl --output=cat`);
    `result` and `exit_status`: systemd's Result and ExecMainStatus of the unit.

    The first cause in time wins, and of the signatures that fit it, the most specific. SGLang ends every
    failure after its arguments by SIGKILL, so the exit status alone tells little.
    """
    entries = list(_entries(journal))
    return (
        _killed_for_memory(entries, result)
        or _first(entries, consequence=False)
        or _first(entries, consequence=True)
        or _late(entries, result)
        or _never_bound(entries, result)
        or _killed(entries, result, exit_status)
        or _unknown(entries, result, exit_status)
    )


_OOM_KILLER: Final = re.compile(
    r"killed by the OOM killer|systemd-oomd killed|[Oo]ut of memory: Killed process|oom-kill:"
    r"|Failed with result 'oom-kill'"
)


def _killed_for_memory(entries: list[str], result: str) -> Explanation | None:
    evidence = next((entry for entry in entries if _OOM_KILLER.search(entry)), "")
    if not evidence and result != "oom-kill":
        return None
    return Explanation(
        kind="out of host memory",
        cause="the kernel's OOM killer ended a process of the server: main memory ran out, or MemoryMax was reached",
        advice="give the service more memory (MemoryMax, or a host with more RAM), or load weights with fewer "
        "threads (`model_loader_extra_config`); no GPU setting is at fault",
        evidence=evidence.strip(),
        source="systemd.service(5), Result=oom-kill",
    )


def _first(entries: list[str], *, consequence: bool) -> Explanation | None:
    """The first entry that a signature fits, explained by the most specific one."""
    for entry in entries:
        for signature in signatures():
            if signature.consequence == consequence and (found := signature.pattern.search(entry)):
                return Explanation(
                    kind=signature.kind,
                    cause=_filled(signature.cause, found),
                    advice=_filled(signature.advice, found),
                    evidence=_line_at(entry, found.end()),
                    source=signature.source,
                )
    return None


def _filled(text: str, found: re.Match[str]) -> str:
    for name, value in found.groupdict(default="").items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _line_at(entry: str, end: int) -> str:
    """The line of `entry` in which a match ended."""
    start = entry.rfind("\n", 0, end) + 1
    return entry[start:].partition("\n")[0].strip()


def _late(entries: list[str], result: str) -> Explanation | None:
    if result != "timeout":
        return None
    return Explanation(
        kind="not ready in time",
        cause=f"the limit passed while the server was {progress(_lines(entries))}",
        advice="if it was still at work, raise the limit (`serve_ready_limit`); if it hung while connecting the "
        "ranks or capturing graphs, suspect the links between the GPUs",
        evidence=next((entry.strip() for entry in reversed(entries) if entry.strip()), ""),
        source="systemd.service(5), Result=timeout",
    )


def _never_bound(entries: list[str], result: str) -> Explanation | None:
    if result not in ("", "success") or progress(_lines(entries)).phase is not Phase.BINDING:
        return None
    return Explanation(
        kind="never bound its port",
        cause="the server loaded everything, holds the GPU memory, and did not bind its port",
        advice="find with `ss -ltnp` who has or had the port; start it again once the port is free",
        evidence=next((entry.strip() for entry in reversed(entries) if entry.strip()), ""),
        source="roles/serve/start.py",
    )


_SUICIDE: Final = "kill_process_tree called"
"""SGLang says so before it ends itself; there is a reason then, even if it is not known."""


def _killed(entries: list[str], result: str, exit_status: int | None) -> Explanation | None:
    own = any(_SUICIDE in entry and "include_parent=True" in entry for entry in entries)
    if (result, exit_status) != ("signal", signal.SIGKILL) or own or _first_error(entries):
        return None
    return Explanation(
        kind="a process was killed",
        cause=f"the main process was killed from outside while {progress(_lines(entries))}",
        advice='the kernel\'s OOM killer is the usual one: `journalctl -k -g "out of memory"`; give the service more '
        "memory, or ask who else ends processes here",
        evidence=next((entry.strip() for entry in entries if "code=killed" in entry), ""),
        source="systemd.service(5), Result=signal",
    )


# The end of a traceback, a program's own complaint, or an entry that says of itself that it is an error.
_ERROR: Final = re.compile(
    r"^[\w.]+(?:Error|Exception)\b|^Traceback \(most recent call last\)|\bERROR:|\berror: |\bfatal error\b"
    r"|Scheduler hit an exception|Segmentation fault|^terminate called",
    re.MULTILINE,
)
_EXCEPTION: Final = re.compile(r"^(?!  )[\w.]*(?:Error|Exception|Interrupt)\b.*", re.MULTILINE)


def _unknown(entries: list[str], result: str, exit_status: int | None) -> Explanation:
    """Nobody's signature: the first error that the journal shows, for a person to judge."""
    evidence = _first_error(entries)
    ended = ", ".join(
        [f"result {result}"] * bool(result) + [f"exit status {exit_status}"] * (exit_status is not None)
    )
    return Explanation(
        kind=UNKNOWN,
        cause=f"not a failure that Slipway knows ({ended or 'nothing known of its end'}); "
        + ("the first error is shown" if evidence else "the journal shows no error")
        + f". It ended while {progress(_lines(entries))}",
        advice="read the journal from that line on; what follows the first error is often its consequence"
        if evidence
        else "read the whole journal, and `journalctl -k` for that time",
        evidence=evidence,
        source="the journal",
    )


def _first_error(entries: list[str]) -> str:
    """The exception that the first erroneous entry ends with, or its first line; empty if there is none."""
    first = next((entry for entry in entries if _ERROR.search(entry)), "")
    raised = _EXCEPTION.search(first)
    return (raised[0] if raised else first.strip().partition("\n")[0]).strip()


_STAMP: Final = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\]|\[rank\d+\]:")


def _entries(journal: str) -> Iterator[str]:
    """The log's entries in time order: a line, with the lines of a traceback or a message that go with it.

    SGLang begins an entry with its time stamp; what follows without one belongs to it if it is a traceback.
    """
    entry: list[str] = []
    in_traceback = False
    for line in journal.splitlines():
        if (entry and not in_traceback) or _STAMP.match(line):
            yield from ["\n".join(entry)] * bool(entry)
            entry, in_traceback = [], False
        entry.append(line)
        in_traceback = (
            in_traceback or "Traceback (most recent call last)" in line or line.lstrip().startswith('File "')
        )
    yield from ["\n".join(entry)] * bool(entry)


def _lines(entries: list[str]) -> Iterator[str]:
    for entry in entries:
        yield from entry.splitlines()
