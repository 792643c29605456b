"""Whether a folder holds a whole model: no file of it is missing or cut off. Standard library only, for the host."""

import json
from pathlib import Path

from roles.weights.read_checkpoint import count


def incomplete(folder: Path) -> list[str]:
    """What a model needs and the folder has not, a sentence each; empty if it is whole."""
    found = [] if (folder / "config.json").is_file() else ["config.json: not there"]
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        found.append("no *.safetensors file is there")
    for file in weights:
        try:
            count(file, {})
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            found.append(f"{file.name}: {error}")
    for index in sorted(folder.glob("*.safetensors.index.json")):
        try:
            named = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            found.append(f"{index.name}: no index of safetensors files")
            continue
        missing = sorted(name for name in named if not (folder / name).is_file())
        found += [f"{name}: named in {index.name}, but not there" for name in missing]
    return found
