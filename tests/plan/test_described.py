"""What weights and servers say of themselves is held against what was estimated."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from pyinfra.api.config import Config
from pyinfra.api.connect import connect_all
from pyinfra.api.host import Host
from pyinfra.api.state import State
from pyinfra.connectors.fake import FakeConnector
from pyinfra.context import ctx_state

from inventory import SiteInventory
from roles.serve.declared import declared
from roles.serve.described import check_weights, compare_memory
from roles.serve.memory import estimate
from roles.serve.reported import compare
from roles.serve.steps import SwitchError
from roles.weights.config_files import config_files
from roles.weights.layout import directory
from roles.weights.model import Model
from roles.weights.settings import WeightsSettings
from tests.unit.shipped import profile, rtx_pro_6000_x8, site

HOST = rtx_pro_6000_x8()
FIGURES = ("weight", "kvcache", "token_capacity")
MODEL = site().models["kimi-k2.6"]
TENSORS = {"language_model.model.layers.N.mlp.experts.N.up_proj.weight_packed I32": {"count": 1, "bytes": 1}}


def answer(of: Model, problems: Sequence[str] = ()) -> str:
    """What the host says of Kimi's weights when they are those `of` another model."""
    folder = directory(WeightsSettings.model_validate({}), MODEL)
    described = {"folder": folder, "files": config_files(of), "bytes": 1, "tensors": TENSORS, "problems": problems}
    return f"::observed:: checkpoints\n{json.dumps(described)}"


@contextmanager
def eight_gpus(said: str, hidden: str = "", **variables: Any) -> Iterator[Host]:
    """A host of eight GPUs that says this of Kimi's weights, and names a file that the server may not read."""
    data = {
        "fake_delay": 0,
        "fake_delay_jitter": 0,
        "fake_responses": {"::observed:: checkpoints": said, "! -readable": hidden},
        "profile": "k26-tp8",
        "hardware": HOST.model_dump(),
        **variables,
    }
    state = State(SiteInventory(site(), {"@fake/host": data}, {}, {}), Config())
    connect_all(state)
    with ctx_state.use(state):
        yield next(iter(state.inventory))


def check(said: str, **variables: Any) -> None:
    with eight_gpus(said, **variables) as host:
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


def test_weights_that_the_server_may_not_read_are_refused() -> None:
    folder = re.escape(directory(WeightsSettings.model_validate({}), MODEL))
    with pytest.raises(SwitchError, match=rf"^k26-tp8: .* may not read its weights: /w/a; `chmod -R a\+rX {folder}`"):
        check(answer(MODEL), hidden="/w/a")


def test_memory_as_estimated_is_not_spoken_of_and_other_memory_is(caplog: pytest.LogCaptureFixture) -> None:
    reported = {
        difference.name: difference.predicted
        for difference in compare(estimate(MODEL, profile("k26-tp8"), HOST), dict.fromkeys(FIGURES, 0))
    }
    with eight_gpus(answer(MODEL)) as host:
        candidate = declared(host).candidates["k26-tp8"]
        compare_memory(host, candidate, reported)
        assert "memory estimate" not in caplog.text
        compare_memory(host, candidate, {**reported, "weight": reported["weight"] + 1})
    assert "k26-tp8: the memory estimate is wrong: weight: 72.7" in caplog.text
    assert "token_capacity" not in caplog.text


def test_a_server_that_does_not_tell_is_not_compared() -> None:
    with eight_gpus("") as host:
        compare_memory(host, declared(host).candidates["k26-tp8"], {})
        assert isinstance(host.connector, FakeConnector)
        assert host.connector.executed_commands == []
