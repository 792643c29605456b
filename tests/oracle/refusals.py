"""What SGLang itself says of sizes that the rules of roles/serve/parallelism.py judge.

`python -m tests.oracle.refusals PYTHON`, PYTHON being a release's, writes the table that the unit tests hold the
rules against.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from roles.serve.exact import Question, program
from roles.serve.exact_question import question
from roles.serve.profile import Flag, Profile
from roles.sglang.catalogue import Catalogue
from tests.oracle.__main__ import VERSION, ask
from tests.oracle.cases import HOST, documents

TABLE: Final = Path(__file__).parents[1] / "unit" / "data" / f"refusals-{VERSION}.json"

ASKED: Final[tuple[tuple[str, dict[str, Flag]], ...]] = (
    ("k26-tp8", {"ep_size": 2}),
    ("k26-tp8", {"ep_size": 3}),
    ("k26-tp8", {"tp_size": 4, "ep_size": 2}),
    ("k26-tp8", {"tp_size": 2, "ep_size": 4}),
    ("k26-tp8", {"tp_size": 2, "pp_size": 4, "ep_size": 2}),
    ("k26-tp8", {"tp_size": 6}),
    ("k26-tp8", {"tp_size": 7}),
    ("k26-tp8", {"attn_dp_size": 3}),
    ("k26-tp8", {"tp_size": 2, "dp_size": 4, "attn_dp_size": 2}),
    ("k26-tp8", {"moe_dp_size": 2}),
    ("k26-ep8", {"ep_size": 2, "moe_dp_size": 2}),
    ("k26-tp8", {"tp_size": 4, "pp_size": 2, "moe_dp_size": 2}),
    ("k26-tp8", {"attn_cp_size": 2}),
    ("k26-tp8", {"moe_dense_tp_size": 2}),
    ("k26-tp8", {"moe_dense_tp_size": 4}),
    ("k26-tp8", {"enable_eplb": True}),
    ("k26-ep8", {"ep_num_redundant_experts": 4}),
    ("k26-ep8", {"ep_dispatch_algorithm": "lp"}),
    ("k26-ep8-eplb", {"ep_dispatch_algorithm": "static"}),
    ("k26-ep8", {"moe_a2a_backend": "deepep"}),
    ("k26-ep8", {"moe_a2a_backend": "flashinfer"}),
    ("k26-tp8", {"ep_size": 2, "moe_a2a_backend": "mooncake"}),
    ("k26-pp8", {"pp_size": 62}),
    ("k26-pp8", {"speculative_algorithm": "EAGLE3"}),
    ("glm-5-nvfp4-tp8", {"ep_size": 2}),
    ("glm-5-nvfp4-tp8", {"ep_size": 4}),
    ("glm-5-nvfp4-tp8", {"ep_size": 8}),
)
"""Profiles and what is changed in them."""

# Resolves flags in a release as a server would, and prints how many ranks it would start.
RANKS: Final = """
import json, sys, tempfile
from pathlib import Path
from roles.serve.exact import Question
from roles.serve.exact.gpus import pretend
one = Question.of_line(sys.stdin.readline())
pretend(one)
from roles.serve.exact.build import WITHOUT_CHECKPOINT, _resolved, _written
from sglang.srt.runtime_context import launch_world_size_of
with tempfile.TemporaryDirectory() as folder:
    model = _written(Path(folder) / "model", one.files)
    print(launch_world_size_of(_resolved([*one.flags, "--model-path", model, *WITHOUT_CHECKPOINT])))
"""


def profile(name: str, server: dict[str, Flag]) -> Profile:
    """A shipped profile with other flags."""
    shipped = documents()[1][name]
    label = f"{name} {', '.join(f'{flag} {value}' for flag, value in server.items())}"
    return shipped.model_copy(update={"name": label, "server": {**shipped.server, **server}})


def main(python: str) -> None:
    models, catalogue = documents()[0], Catalogue.load(VERSION)
    profiles = [profile(*one) for one in ASKED]
    questions = [question(models[one.model], one, HOST, catalogue) for one in profiles]
    said = {answer.name: answer.refusal for answer in ask(python, [replace(one, ranks=(0,)) for one in questions])}
    started = {one.name: _ranks(python, one) for one in questions if one.name.endswith("tp_size 4, ep_size 2")}
    table = {"sglang": VERSION, "says": said, "ranks": started}
    TABLE.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _ranks(python: str, one: Question) -> int:
    with tempfile.NamedTemporaryFile(suffix=".pyz") as packed:
        packed.write(program())
        packed.flush()
        environment = {**os.environ, "PYTHONPATH": packed.name}
        words = [python, "-c", RANKS]
        run = subprocess.run(
            words, input=one.line() + "\n", env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
    return int(run.stdout.split()[-1])


if __name__ == "__main__":
    main(sys.argv[1])
