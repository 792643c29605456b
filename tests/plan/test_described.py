"""Before a switch the weights that have come are judged by what they say of themselves."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from pyinfra.api.config import Config
from pyinfra.api.connect import connect_all
from pyinfra.api.host import Host
from pyinfra.api.state import State
from pyinfra.context import ctx_state

from inventory import SiteInventory
from roles.serve.declared import declared
from roles.serve.described import check_weights
from roles.serve.steps import SwitchError
from roles.weights.config_files import config_files
from roles.weights.layout import directory
from roles.weights.model import Model
from roles.weights.settings import WeightsSettings
from tests.unit.shipped import rtx_pro_6000_x8, site

MODEL = site().models["kimi-k2.6"]
TENSORS = {"language_model.model.layers.N.mlp.experts.N.up_proj.weight_packed I32": {"count": 1, "bytes": 1}}


def answer(of: Model, problems: Sequence[str] = ()) -> str:
    """What the host says of Kimi's weights when they are those `of` another model."""
    folder = directory(WeightsSettings.model_validate({}), MODEL)
    described = {"folder": folder, "files": config_files(of), "bytes": 1, "tensors": TENSORS, "problems": problems}
    return f"::observed:: checkpoints\n{json.dumps(described)}"


def check(said: str, **variables: Any) -> None:
    """Judge Kimi's weights on a host of eight GPUs that says this of them."""
    data = {
        "fake_delay": 0,
        "fake_delay_jitter": 0,
        "fake_responses": {"::observed:: checkpoints": said},
        "profile": "k26-tp8",
        "hardware": rtx_pro_6000_x8().model_dump(),
        **variables,
    }
    state = State(SiteInventory(site(), {"@fake/host": data}, {}, {}), Config())
    connect_all(state)
    host: Host = next(iter(state.inventory))
    with ctx_state.use(state):
        check_weights(host, declared(host).candidates["k26-tp8"])


def larger(layers: int) -> Model:
    architecture = MODEL.architecture.model_copy(update={"num_hidden_layers": layers})
    return MODEL.model_copy(update={"architecture": architecture})


def test_weights_as_declared_pass() -> None:
    check(answer(MODEL))


def test_weights_that_are_larger_than_declared_are_refused() -> None:
    with pytest.raises(SwitchError, match=r"^k26-tp8, by its weights on the host: out of memory: "):
        check(answer(larger(90)))


def test_weights_that_may_be_too_large_must_be_accepted() -> None:
    with pytest.raises(SwitchError, match="serve_accept_tight: true"):
        check(answer(larger(66)))
    check(answer(larger(66)), serve_accept_tight=True)


def test_weights_that_were_cut_off_are_refused() -> None:
    with pytest.raises(SwitchError, match=r"^k26-tp8: /w/a\.safetensors: truncated: it has 3 of 4 bytes$"):
        check(answer(MODEL, ["/w/a.safetensors: truncated: it has 3 of 4 bytes"]))
