"""What must hold for any model and any parallel sizes."""

from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roles.serve.memory import Estimate, Verdict, estimate
from roles.serve.parallelism import Parallelism
from roles.serve.placement import Placement, Sharing, Split, pipeline_stages
from roles.serve.profile import Profile
from roles.serve.tensors import stage_weights
from roles.serve.weights_per_rank import weights_per_rank
from roles.weights.model import Model
from tests.oracle.cases import HOST, more_models

MODELS = [model for name, model in more_models().items() if not name.startswith(("tiny", "kimi-k2.6-eagle3"))]
models = st.sampled_from(MODELS)
powers = st.sampled_from([1, 2, 4, 8])
some = settings(max_examples=25, deadline=None, derandomize=True, database=None)


def profile(**server: int | float) -> Profile:
    return Profile(name="any", description="", model="any", server=dict(server))


def largest(model: Model, **server: int) -> int:
    spread = profile(**server)
    return max(stage.total for stage in weights_per_rank(model, spread, Parallelism.of(spread.server)))


@some
@given(models, powers, powers, powers)
def test_the_ranks_together_hold_the_model(model: Model, tp: int, ep: int, attn_dp: int) -> None:
    parallelism = Parallelism(tp=tp, ep=min(ep, tp), attn_dp=min(attn_dp, tp))
    sharing = Sharing.of_parallelism(parallelism, model.architecture)
    placement = Placement(stages=(range(model.architecture.num_hidden_layers),))
    for weight, _ in stage_weights(model, placement, 0):
        shares = sharing.of(weight.split) * (
            sharing.ep if weight.split in (Split.EXPERTS, Split.WHOLE_EXPERTS) else 1
        )
        assert weight.bytes_on_rank(sharing) * shares == weight.bytes


@some
@given(models, powers)
def test_the_stages_together_hold_every_layer_once(model: Model, pp: int) -> None:
    spread = profile(pp_size=pp)
    stages = weights_per_rank(model, spread, Parallelism.of(spread.server))
    (whole,) = weights_per_rank(model, profile(), Parallelism())
    for part in ("attention", "indexer", "dense_mlp", "experts", "shared_experts", "router", "embedding"):
        assert sum(stage.parts.get(part, 0) for stage in stages) == whole.parts.get(part, 0)


@some
@given(models, st.sampled_from([1, 2, 4]), powers)
def test_more_ranks_never_need_more_per_rank(model: Model, tp: int, pp: int) -> None:
    assert largest(model, tp_size=2 * tp, pp_size=pp) <= largest(model, tp_size=tp, pp_size=pp)
    assert largest(model, tp_size=tp, pp_size=2 * pp) <= largest(model, tp_size=tp, pp_size=pp)
    assert largest(model, tp_size=2 * tp, ep_size=2) <= largest(model, tp_size=tp)


@some
@given(models, powers, powers, st.floats(0.01, 0.99))
def test_the_verdict_is_no_exactly_outside_the_interval(model: Model, tp: int, pp: int, fraction: float) -> None:
    estimated = judged(model, tp, pp, fraction)
    assert (estimated.verdict is Verdict.NO) == (fraction not in estimated.feasible)
    assert (estimated.verdict is Verdict.OK) == (fraction in estimated.feasible and fraction in estimated.safe)
    assert (estimated.breaks == "") == (estimated.change is None) == (estimated.verdict is Verdict.OK)


@some
@given(models, powers, powers, st.floats(0.01, 0.99))
def test_the_interval_is_empty_exactly_when_no_fraction_helps(
    model: Model, tp: int, pp: int, fraction: float
) -> None:
    interval = judged(model, tp, pp, fraction).feasible
    if interval.is_empty:
        assert judged(model, tp, pp, 1 - fraction).verdict is Verdict.NO
    else:
        middle = (interval.low + interval.high) / 2
        assert judged(model, tp, pp, middle).verdict is not Verdict.NO


@some
@given(models, powers, st.floats(0.5, 0.9))
def test_a_higher_fraction_never_holds_fewer_tokens(model: Model, tp: int, fraction: float) -> None:
    assert judged(model, tp, 1, fraction).tokens <= judged(model, tp, 1, fraction + 0.05).tokens


def judged(model: Model, tp: int, pp: int, fraction: float) -> Estimate:
    return estimate(model, profile(tp_size=tp, pp_size=pp, mem_fraction_static=fraction), HOST)


@some
@given(st.integers(1, 200), st.integers(1, 16))
def test_layers_are_spread_evenly(layers: int, stages: int) -> None:
    spread = pipeline_stages(layers, stages)
    assert [layer for stage in spread for layer in stage] == list(range(layers))
    assert max(map(len, spread)) == ceil(layers / stages)


def test_redundant_experts_are_held_beside_the_others() -> None:
    kimi = more_models()["kimi-k2.6"]
    (plain,) = weights_per_rank(kimi, profile(tp_size=8, ep_size=8), Parallelism(tp=8, ep=8))
    spare = profile(tp_size=8, ep_size=8, ep_num_redundant_experts=8)
    (redundant,) = weights_per_rank(kimi, spare, Parallelism(tp=8, ep=8))
    assert redundant.parts["experts"] == pytest.approx(plain.parts["experts"] * 49 / 48)
