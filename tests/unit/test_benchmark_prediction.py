"""What a record predicts is counted as the server that it is compared with counts."""

import pytest
from pydantic import JsonValue

from roles.benchmark.output import memory
from roles.benchmark.prediction import prediction
from roles.serve.memory import estimate
from roles.serve.reported import compare
from tests.unit.shipped import draft_of, model_of, profile, rtx_pro_6000_x8


@pytest.mark.parametrize("name", ["k26-ep8", "k26-ep8-eagle3", "k26-pp8"])
def test_a_server_that_reports_just_what_was_predicted_confirms_the_estimate(name: str) -> None:
    """A draft model's weights, and the pipeline stages that do not answer, are in neither figure."""
    wanted, hardware = profile(name), rtx_pro_6000_x8()
    expected = prediction(wanted, model_of(wanted), draft_of(wanted), hardware)
    assert expected is not None
    said = expected.memory
    usage: dict[str, JsonValue] = {
        "weight": said["weights_gib"],
        "kvcache": said["kv_cache_gib"],
        "token_capacity": int(said["kv_cache_tokens"]),
        "graph": {"decode": said["graphs_gib"]},
        "startup_available": said["free_when_ready_gib"],
    }
    confirmed = compare(estimate(model_of(wanted), wanted, hardware, draft_of(wanted)), usage)
    assert len(confirmed) == 4
    for difference in confirmed:
        assert difference.reported == pytest.approx(difference.predicted)
    assert memory({"internal_states": [{"memory_usage": usage}]}) == pytest.approx(said)
