"""The name of a record: all that is needed to know whether something has been proven. Pure."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final, Literal, NamedTuple, Self

from roles.benchmark.benchmark import Benchmark
from roles.benchmark.rounds import Level


class Name(NamedTuple):
    """`20261130T202253Z.tiny-tp1.0123456789ab.full.accepted.json`: sorts by time."""

    started: datetime
    profile: str
    proof: str
    level: Level
    outcome: Literal["accepted", "failed"]

    def __str__(self) -> str:
        return f"{self.started:%Y%m%dT%H%M%SZ}.{self.profile}.{self.proof}.{self.level}.{self.outcome}.json"

    @classmethod
    def parsed(cls, text: str) -> Self | None:
        """None for what is no name of a record."""
        match = _NAME.fullmatch(text)
        if match is None:
            return None
        started = datetime.strptime(match["started"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        level: Level = "quick" if match["level"] == "quick" else "full"
        outcome: Literal["accepted", "failed"] = "accepted" if match["outcome"] == "accepted" else "failed"
        return cls(started, match["profile"], match["proof"], level, outcome)


_NAME: Final = re.compile(
    r"(?P<started>\d{8}T\d{6}Z)\.(?P<profile>[^/]+)\.(?P<proof>[0-9a-f]{12})"
    r"\.(?P<level>quick|full)\.(?P<outcome>accepted|failed)\.json"
)


def proof(fingerprint: str, machine: str, benchmark: Benchmark, references: Mapping[int, float]) -> str:
    """What an accepted record proves: that this server on this machine reached these demands.

    When any of them changes, nothing is proven. `machine` is the GPUs and their driver, `references` are the
    profile's reference results in output tokens per second by concurrency.
    """
    demands = [fingerprint, machine, benchmark.model_dump(mode="json"), sorted(references.items())]
    return sha256(json.dumps(demands).encode()).hexdigest()[:12]


def proven(names: Sequence[Name], wanted: str, level: Level) -> Name | None:
    """The newest of `names` that accepts the proof `wanted`, at this level or at a more thorough one."""
    enough = {"quick", "full"} if level == "quick" else {"full"}
    latest = max((name for name in names if name.proof == wanted and name.level in enough), default=None)
    return latest if latest and latest.outcome == "accepted" else None
