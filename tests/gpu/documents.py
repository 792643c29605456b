"""The models and profiles that are shipped, read where there is no pyinfra; and smaller ones made of them. Pure."""

from pathlib import Path
from typing import Final

import yaml

from roles.serve.profile import Profile, extended
from roles.weights.model import Model

ROOT: Final = Path(__file__).parents[2] / "group_vars"


def model(name: str) -> Model:
    """A model of group_vars/models."""
    return Model.read({**_values("models", name), "name": name}, f"group_vars/models/{name}.yml")


def profile(name: str) -> Profile:
    """A profile of group_vars/profiles, what it extends resolved."""
    return Profile.read({**_resolved(name), "name": name}, f"group_vars/profiles/{name}.yml")


def _resolved(name: str) -> dict[str, object]:
    values = _values("profiles", name)
    parent = values.pop("extends", None)
    return extended(values, _resolved(parent)) if isinstance(parent, str) else values


def _values(kind: str, name: str) -> dict[str, object]:
    values = yaml.safe_load((ROOT / kind / f"{name}.yml").read_text(encoding="utf-8"))
    assert isinstance(values, dict)
    return values


def variant(of: Model, **changes: object) -> Model:
    """`of` with other values, dimensions of its architecture among them."""
    values = of.model_dump(exclude_unset=True)
    own = {key: changes.pop(key) for key in list(changes) if key in Model.model_fields}
    return Model.read({**values, **own, "architecture": {**values["architecture"], **changes}}, of.name)


def cut(of: Model, layers: int) -> Model:
    """The first `layers` of a model, at full width; its MTP layers stay."""
    types = of.architecture.indexer_types
    kept = {} if types is None else {"indexer_types": types[:layers]}
    return variant(of, name=f"{of.name}-{layers}-layers", num_hidden_layers=layers, **kept)


def text_only(of: Model) -> Model:
    """A multimodal model without its vision tower: the processors of images come with the real checkpoint only."""
    if of.architecture.vision_config is None:
        return of
    return variant(of, model_type="kimi_k2", vision_config=None, trust_remote_code=False)
