"""Read what models' weights on a host say of themselves, in one round trip."""

import json
import shlex
from collections.abc import Mapping

from pyinfra.api.host import Host

from roles.observation import observe
from roles.refusal import Refusal
from roles.weights.checkpoint import PROGRAM, Checkpoint
from roles.weights.model import Model


def as_described(host: Host, models: Mapping[str, Model]) -> tuple[dict[str, Model], dict[str, str]]:
    """The models by name, with dimensions and quantisation as their files say, which win over the declaration;
    and what is wrong with the files of the others, one sentence each.

    `models` are those that are on the host, by directory.
    """
    if not models:
        return {}, {}
    program = f'for folder in {shlex.join(models)}; do python3 -c {shlex.quote(PROGRAM)} "$folder"; echo; done'
    described, problems = {}, {}
    for line in filter(None, observe(host, {"checkpoints": program})["checkpoints"]):
        printed = json.loads(line)
        declared = models[printed["folder"]]
        try:
            described[declared.name] = Checkpoint.read(printed).model(declared)
        except Refusal as refusal:
            problems[declared.name] = str(refusal)
    return described, problems
