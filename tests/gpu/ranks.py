"""What each rank of a server reports, beside what was computed for its pipeline stage."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from roles.serve.memory import Estimate
from tests.gpu import rank_report
from tests.gpu.measured import Figure


def plugin(folder: Path) -> Path:
    """Write into `folder`, which goes on a server's PYTHONPATH, the plugin that makes its ranks report."""
    module = Path(rank_report.__file__)
    about = folder / f"{module.stem}-1.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    shutil.copy(module, folder)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module.stem}\nVersion: 1\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(
        f"[sglang.srt.plugins]\n{module.stem} = {module.stem}:register\n", encoding="utf-8"
    )
    return folder


def figures(expected: Estimate, log: str) -> Iterator[Figure]:
    """Bytes of weights and of one token of each rank that reported; a draft's and position tables are left out."""
    for line in log.splitlines():
        if rank_report.MARK not in line:
            continue
        rank = json.loads(line.partition(rank_report.MARK)[2])
        if rank["draft"]:
            continue
        name, stage = f"tp {rank['tp']} pp {rank['pp']}", expected.stages[rank["pp"]]
        weights = stage.of_target - stage.fragments - stage.parts.get("rope", 0)
        cell = expected.kv_bytes_per_stage[rank["pp"]] - expected.draft_kv_bytes
        yield Figure(f"{name} weights", weights, rank["weights"])
        yield Figure(f"{name} KV bytes per token", cell, rank["kv"] / rank["tokens"])
