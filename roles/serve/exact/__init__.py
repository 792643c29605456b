"""The exact answer: SGLang's own model code, built without memory, counts what each rank will hold.

The estimate of `roles.serve.memory` knows SGLang's rules; this runs them. A release's own Python resolves a
profile's flags, sets up its parallel groups, builds the real model class and processes its weights, with every
tensor on torch's `meta` device: shapes without data. It needs neither a GPU nor a checkpoint, only config.json,
and it refuses what SGLang itself would refuse at start. The imports take half a minute once, each rank then 3 to
6 seconds.

This file is shared by both sides and needs nothing but the standard library; the rest runs on the host only:

    python exact.pyz < questions.jsonl > answers.jsonl
"""

import io
import json
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

PACKAGE = __name__


@dataclass(frozen=True)
class Question:
    """One server to build: what it is started with, and what its GPUs are."""

    name: str
    files: Mapping[str, object]
    """The model folder's JSON files by name, `config.json` at least."""
    flags: tuple[str, ...]
    """SGLang's arguments without model path, host and port."""
    environment: Mapping[str, str] = field(default_factory=dict)
    draft_files: Mapping[str, object] = field(default_factory=dict)
    """The draft model's JSON files; empty where there is none."""
    ranks: tuple[int, ...] = (0,)
    """World ranks to build: the first of each pipeline stage is enough."""
    gpus: int = 8
    gpu: str = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    compute_capability: str = "12.0"
    memory_mib: int = 97887
    processors: int = 188
    """Streaming multiprocessors of one GPU."""

    def line(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_line(cls, line: str) -> "Question":
        values = json.loads(line)
        return cls(**{**values, "flags": tuple(values["flags"]), "ranks": tuple(values["ranks"])})


@dataclass(frozen=True)
class Answer:
    """What one rank holds when the KV cache is sized, or why SGLang refuses to start."""

    name: str
    rank: int
    version: str
    """SGLang's."""
    refusal: str = ""
    """SGLang's own words; empty where it builds the model."""
    weights: int = 0
    """Bytes of the model, and of the draft."""
    draft: int = 0
    """Bytes of the draft alone."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """Bytes of the model by part, as in `roles.weights.model.Part`."""
    kv_bytes_per_token: int = 0
    """The draft's share included."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """What SGLang made of flags that were not given."""

    def line(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_line(cls, line: str) -> "Answer":
        return cls(**json.loads(line))


def program() -> bytes:
    """This package as one file that a release's Python runs."""
    archive = io.BytesIO()
    parents = PACKAGE.split(".")[:-1]
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for depth in range(1, len(parents) + 1):
            packed.writestr("/".join([*parents[:depth], "__init__.py"]), "")
        for source in sorted(Path(__file__).parent.glob("*.py")):
            packed.writestr("/".join([*PACKAGE.split("."), source.name]), source.read_text())
        packed.writestr("__main__.py", f"from {PACKAGE}.run import main\n\nmain()\n")
    return archive.getvalue()


def answers(lines: Iterable[str]) -> list[Answer]:
    """The answers in the program's output, other lines ignored."""
    return [Answer.of_line(line) for line in lines if line.startswith('{"name"')]
