"""The GPU harness over CPU ranks, through gloo: each holds the bytes that were computed for it."""

import json
import shlex
import subprocess
from pathlib import Path
from typing import Final

import pytest

from roles.sglang.release import Release, locked_versions
from tests.lab import hosts
from tests.lab.conftest import deploy, told
from tests.lab.places import Place

ROOT: Final = Path(__file__).parents[2]
PYTHON: Final = Release.of(locked_versions()[-1]).python
HARNESS: Final = "/tmp/harness"
ENVIRONMENT: Final = "PYTHONPATH=/opt/lab/stub SGLANG_USE_CPU_ENGINE=1 SGLANG_NCCL_SO_PATH=/nonexistent"


@pytest.fixture(scope="module")
def harness(lab: str) -> str:
    """A host with a release, and what the harness is made of."""
    assert (run := deploy()).returncode == 0, told(run)
    hosts.run(lab, f"rm -rf {HARNESS} && mkdir {HARNESS}")
    pack = "tar cz --exclude=__pycache__ roles group_vars tests/__init__.py tests/gpu"
    unpack = shlex.join([*hosts.ssh_command(Place(lab)), f"sudo tar xz --no-same-owner -C {HARNESS}"])
    subprocess.run(f"set -o pipefail; {pack} | {unpack}", shell=True, executable="/bin/bash", cwd=ROOT, check=True)
    return lab


@pytest.mark.parametrize("profile", ["tiny-tp2", "tiny-pp2"])
def test_each_rank_holds_the_bytes_that_were_computed_for_it(profile: str, harness: str) -> None:
    command = f"{PYTHON} -m tests.gpu --runtime {PYTHON} --profile {profile} --port 31750 --out {profile}"
    said = hosts.run(harness, f"cd {HARNESS} && {command} --environment {ENVIRONMENT} 2>&1", check=False)
    written = hosts.run(harness, f"tail -n 1 {HARNESS}/{profile}/results.jsonl", check=False)
    assert written, said
    outcome = json.loads(written)

    ranks = [figure for figure in outcome["figures"] if figure[0].startswith("tp ")]
    assert len(ranks) == 4, said  # weights and KV bytes per token, of two ranks
    assert all(computed == held for _, computed, held in ranks), said
    assert outcome["left after the stop"] == "", said
