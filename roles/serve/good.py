"""The profiles that were accepted on a host: what a failed switch goes back to. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from pydantic import ValidationError

from roles.documents import Document
from roles.paths import STATE
from roles.refusal import Refusal

GOOD: Final = f"{STATE}/good"
"""The unit files as they were when accepted; a rollback puts them back."""

GOOD_HISTORY: Final = f"{STATE}/good.jsonl"
"""One line for each acceptance, append-only."""


class Acceptance(Document):
    """The profiles that served when a switch was found good."""

    at: datetime
    profiles: dict[str, str]
    """Fingerprint by profile."""

    def line(self) -> str:
        return self.model_dump_json()


def acceptances(lines: Iterable[str]) -> list[Acceptance]:
    """The history, the latest last. A line cut off by a crash is passed over: the next acceptance follows it."""
    found = []
    for line in lines:
        try:
            found.append(Acceptance.model_validate_json(line))
        except ValidationError:
            continue
    return found


def accepted(history: Sequence[Acceptance]) -> Mapping[str, str]:
    """Fingerprint by profile of what was accepted last."""
    return history[-1].profiles if history else {}


def previous(history: Sequence[Acceptance], host: str) -> tuple[str, ...]:
    """The profiles that were good before those that are good now. Raises Refusal if there are none."""
    now = set(accepted(history))
    for acceptance in reversed(history):
        if set(acceptance.profiles) != now:
            return tuple(sorted(acceptance.profiles))
    raise Refusal(f"host {host}: profile: `previous` needs an earlier good profile, and {GOOD_HISTORY} has none")
