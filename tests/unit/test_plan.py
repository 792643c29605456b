"""What a plan says of hosts, profiles and deploys."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from roles.benchmark.record import Ceiling, Prediction
from roles.files import File
from roles.preflight.hardware import Hardware
from roles.serve.candidate import Candidate
from roles.serve.command import Command
from roles.serve.deadline import Start
from roles.serve.exact import Answer
from roles.serve.memory import Verdict
from roles.serve.plan import Choice, Exact, Live, Plan, Row, best, changes, downtime, exchange, row
from roles.serve.plan_text import as_json, as_text
from roles.serve.planning import last_records
from roles.serve.profile import Profile
from roles.serve.suits import suitability
from roles.serve.unit import Neighbours, UnitState, unit_name
from tests.unit.benchmark_records import point, record
from tests.unit.shipped import changed, draft_of, model_of, profile, rtx_pro_6000_x8, site

CPU_HOST = Hardware(gpus=0)


def row_of(wanted: Profile, hardware: Hardware | None = None) -> Row:
    hardware = rtx_pro_6000_x8() if hardware is None else hardware
    model, draft = model_of(wanted), draft_of(wanted)
    reasons = suitability(wanted, model, hardware, draft, site().profiles).reasons
    return row(wanted, model, draft, hardware, reasons, [])


def test_a_row_has_what_is_known_of_a_profile_before_it_is_loaded() -> None:
    found = row_of(profile("k26-ep8-tuned"))
    assert (found.gpus, found.reasons) == (8, ())
    assert found.memory is not None
    assert found.memory.verdict is Verdict.OK
    assert found.requests_at_context == pytest.approx(found.memory.tokens / 262144)
    assert found.single_ceiling is not None
    assert found.full_ceiling is not None
    assert found.full_ceiling > found.single_ceiling
    # The KV cache holds fewer requests of the benchmark's traffic than the 256 that may run.
    assert found.full_requests == found.memory.tokens // (1024 + 512)


def test_attention_groups_have_a_kv_cache_each() -> None:
    one, eight = row_of(profile("k26-tp8")), row_of(changed("k26-tp8", attn_dp_size=8))
    assert one.memory is not None
    assert eight.memory is not None
    assert one.requests_at_context == pytest.approx(one.memory.tokens / 262144)
    assert eight.requests_at_context == pytest.approx(8 * eight.memory.tokens / 262144)


def test_a_row_says_why_not_even_where_nothing_can_be_computed() -> None:
    found = row_of(changed("k26-tp8", tp_size=2, ep_size=4))
    assert found.reasons
    assert found.memory is None
    assert found.single_ceiling is None


def test_a_server_without_room_for_a_request_has_no_throughput() -> None:
    found = row_of(changed("k26-tp8", mem_fraction_static=0.7))
    assert found.reasons
    assert (found.full_requests, found.full_ceiling) == (None, None)


def test_a_profile_that_is_not_suitable_never_reads_ok() -> None:
    crashing = row_of(changed("k26-tp8", attn_cp_size=2).model_copy(update={"name": "crashing"}))
    assert crashing.memory is not None
    assert crashing.memory.verdict is Verdict.OK
    one = Plan("gpu1", rtx_pro_6000_x8(), None, (crashing,), REFUSED)
    [line] = [line for line in as_text([one], 120).splitlines() if line.startswith("  crashing ")]
    assert line.split()[1] == "NO"


def test_a_load_takes_as_long_as_the_last_one_did() -> None:
    wanted = profile("k26-tp8")
    last = record([700.0], profile="k26-tp8").model_copy(update={"startup_seconds": 431.0})
    model = model_of(wanted)
    assert row(wanted, model, None, rtx_pro_6000_x8(), [], [last]).load_seconds == 431
    estimated = row(wanted, model, None, rtx_pro_6000_x8(), [], []).load_seconds
    assert 600 < estimated < 1200  # "ten minutes"


def test_measured_is_the_best_point_with_its_share_of_the_ceiling() -> None:
    slow, fast = point(1), point(64)
    prediction = Prediction(ceilings=(Ceiling(traffic=fast.traffic, concurrency=64, output_tokens_per_second=1600),))
    measured = best(record({slow: [60, 61, 62], fast: [790, 800, 810]}).model_copy(update={"prediction": prediction}))
    assert measured is not None
    assert (measured.tokens_per_second, measured.concurrency, measured.share_of_ceiling) == (800, 64, 0.5)
    assert not measured.accepted
    assert best(record({})) is None


def test_the_last_readable_record_of_each_profile_counts(tmp_path: Path) -> None:
    for day, rate in ((0, 100.0), (1, 200.0)):
        kept = record([rate], day=day, profile="tiny-tp1")
        (tmp_path / kept.name).write_text(kept.to_json())
    later = record([300.0], day=2, profile="tiny-tp1")
    (tmp_path / later.name).write_text("cut of")
    unmeasured = record({}, day=3, profile="tiny-tp1")
    (tmp_path / unmeasured.name).write_text(unmeasured.to_json())
    [found] = last_records(tmp_path)["tiny-tp1"]
    assert found.started == datetime(2026, 11, 2, tzinfo=UTC)
    assert last_records(tmp_path / "absent") == {}


def candidate(name: str, fingerprint_of: str = "") -> Candidate:
    return Candidate(
        profile=profile(name),
        command=Command(program=(name, fingerprint_of), flags=(), environment={}, port=30000),
        unit=File(f"/etc/systemd/system/{unit_name(name)}", ""),
        neighbours=Neighbours((), ()),
        weights="/w",
        start=Start(0, on_gpus=False),
    )


def live(running: Candidate | None = None, **other: object) -> Live:
    units, accepted = {}, {}
    if running is not None:
        fingerprint = running.command.fingerprint
        units = {running.unit_name: UnitState(enabled=True, active="active", stale=False, fingerprint=fingerprint)}
        accepted = {running.profile.name: fingerprint}
    values: dict[str, object] = {
        "release": True,
        "weights": frozenset({"/w"}),
        "units": units,
        "accepted": accepted,
        "stale_files": [],
        "gone": [],
    }
    return Live(**(values | other))  # type: ignore[arg-type]


MODELS = {"/w": site().models["tiny-qwen3"]}


def test_what_is_served_as_declared_changes_nothing() -> None:
    one = candidate("tiny-tp1")
    assert changes([one], "0.5.23-abc", MODELS, live(one)) == ((), ())


def test_a_bare_host_gets_everything_and_has_no_downtime() -> None:
    one = candidate("tiny-tp1")
    bare = live(release=False, weights=frozenset(), stale_files=["a", "b"])
    found, leaving = changes([one], "0.5.23-abc", MODELS, bare)
    assert found == (
        "install the release 0.5.23-abc",
        "make the model tiny-qwen3 (0.0 GB)",
        "write 2 units and programs",
        "start sglang-tiny-tp1.service",
        "measure the served profile unless a record proves it, and keep it for the next boot",
    )
    assert downtime([one], leaving, {}, bare) == 0


def test_a_switch_stops_what_runs_and_costs_the_load() -> None:
    old, new = candidate("tiny-tp1"), candidate("tiny-tp2")
    found, leaving = changes([new], "r", MODELS, live(old))
    assert found[:2] == ("stop sglang-tiny-tp1.service", "start sglang-tiny-tp2.service")
    rows = {"tiny-tp2": row_of(profile("tiny-tp2"), CPU_HOST)}
    assert downtime([new], leaving, rows, live(old)) == pytest.approx(7 + rows["tiny-tp2"].load_seconds)


def test_gpus_that_have_not_exchanged_values_do_so_between_the_servers() -> None:
    old, new = candidate("k26-tp8", "old"), candidate("k26-tp8", "new")
    _, stopping = changes([new], "r", MODELS, live(old))
    untried = frozenset({"k26-tp8"})
    assert exchange([new], stopping, live(old, untried=untried)) == 180
    assert exchange([new], stopping, live(old)) == 0
    assert exchange([new], (), live(untried=untried)) == 0  # they are free, and do so before
    assert exchange([old], stopping, live(old, untried=untried)) == 0


def test_other_settings_restart_the_same_unit() -> None:
    found, leaving = changes([candidate("tiny-tp1", "new")], "r", MODELS, live(candidate("tiny-tp1", "old")))
    assert found[0] == "restart sglang-tiny-tp1.service"
    assert leaving == ("sglang-tiny-tp1.service",)


def test_units_of_profiles_that_are_gone_are_removed() -> None:
    one = candidate("tiny-tp1")
    found, _ = changes([one], "r", MODELS, live(one, gone=["/etc/systemd/system/sglang-old.service"]))
    assert found == ("remove /etc/systemd/system/sglang-old.service",)


def plan(choice: Choice, hardware: Hardware | None = None, unreachable: str | None = None) -> Plan:
    hardware = hardware or rtx_pro_6000_x8()
    rows = tuple(row_of(profile(name), hardware) for name in sorted(site().profiles))
    return Plan("gpu1", hardware, unreachable, rows, choice)


REFUSED = Choice(("k26-tp8",), ("k26-tp8: out of memory",), (), None, None)
SWITCH = Choice(("k26-tp8",), (), ("server.x: has no effect",), ("start sglang-k26-tp8.service",), 850.0)


def exactly(one: Plan) -> Plan:
    """A plan with exact figures, a hundredth above the estimated weights."""
    rows = [
        row._replace(exact=Exact("", memory.weights * 101 // 100, memory.kv_bytes_per_token)) if memory else row
        for row in one.rows
        for memory in [row.memory]
    ]
    return one._replace(rows=tuple(rows))


def test_exact_figures_have_the_estimate_and_its_difference_beside_them() -> None:
    lines = as_text([exactly(plan(SWITCH))], 80).splitlines()
    [kimi] = [line.split() for line in lines if line.startswith("  k26-tp8 ")]
    assert kimi == ["k26-tp8", "72.49", "71.78", "-0.99%", "35,136", "35,136"]
    assert "+0.00%" in as_text([plan(SWITCH)._replace(rows=(equal("k26-tp8"),))], 80)


def equal(name: str) -> Row:
    row = row_of(profile(name))
    assert row.memory is not None
    return row._replace(exact=Exact("", row.memory.weights + 1, row.memory.kv_bytes_per_token))


def test_what_sglang_refuses_is_said_in_its_words() -> None:
    refused = row_of(profile("k26-tp8"))._replace(exact=Exact("ValueError: no", 0, 0))
    text = as_text([plan(SWITCH)._replace(rows=(refused,))], 80)
    assert "SGLang would not start k26-tp8: ValueError: no" in text


def test_of_several_ranks_the_one_with_most_counts() -> None:
    ranks = [
        Answer("p", rank, "0.5.23", weights=weights, kv_bytes_per_token=kv)
        for rank, weights, kv in [(0, 5, 2), (1, 7, 1)]
    ]
    assert Exact.of(ranks) == Exact("", 7, 2)
    assert Exact.of([*ranks, Answer("p", 2, "0.5.23", refusal="no")]).refusal == "no"


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_the_terminal_and_names_every_profile_whole(width: int) -> None:
    text = as_text([exactly(plan(SWITCH))], width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for name in site().profiles:
        assert name in text
    assert "\n* k26-tp8 " in text


def test_a_figure_stands_under_its_heading() -> None:
    lines = as_text([plan(SWITCH)], 120).splitlines()
    [heading] = [line for line in lines if line.startswith("profile ")]
    [kimi] = [line for line in lines if line.startswith("* k26-tp8 ")]
    assert heading.split() == ["profile", "fits", "GPUs", "GiB", "tokens", "context", "C=1", "full", "tok/s", "min"]
    assert kimi.split()[2:5] == ["OK", "8", "71.8"]


def test_each_reason_is_said_once() -> None:
    text = as_text([plan(SWITCH)], 120)
    assert "Not for this host: tiny-moe-tp2-ep2, tiny-pp2, tiny-tp1, tiny-tp2: it serves on the CPU" in text


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (REFUSED, ["A deploy would refuse k26-tp8:", "- k26-tp8: out of memory"]),
        (
            SWITCH,
            [
                "For k26-tp8 a deploy would\n  - start sglang-k26-tp8.service\nExpected downtime: about 14 min.",
                "Warning: server.x: has no effect",
            ],
        ),
        (
            SWITCH._replace(exchange_seconds=180),
            ["downtime: about 14 min, and at most 3 min more while the GPUs exchange values."],
        ),
        (
            Choice(("k26-tp8",), (), (), (), 0),
            ["k26-tp8 is served as declared: a deploy would leave the server alone.", "deploy.py --dry"],
        ),
        (Choice(("k26-tp8",), (), (), ("start x",), 0), ["Expected downtime: none."]),
        (Choice(("k26-tp8",), (), (), None, None), ["what it would change is not known"]),
    ],
)
def test_the_choice_is_explained(choice: Choice, said: list[str]) -> None:
    text = as_text([plan(choice)], 120)
    assert all(part in text for part in said)


def test_a_host_that_was_not_reached_says_so() -> None:
    text = as_text([plan(SWITCH, unreachable="no route")], 120)
    assert "Not reached, planned from its variables alone: no route" in text


def test_json_says_the_same_as_data() -> None:
    document = json.loads(as_json([plan(REFUSED)]))
    assert document["ok"] is False
    host = document["hosts"]["gpu1"]
    assert host["chosen"]["refusals"] == ["k26-tp8: out of memory"]
    profiles = {entry["profile"]: entry for entry in host["profiles"]}
    assert profiles.keys() == site().profiles.keys()
    kimi = profiles["k26-tp8"]
    assert kimi["suits"]
    assert kimi["memory"]["verdict"] == "OK"
    assert kimi["memory"]["feasible"][0] < 0.905 < kimi["memory"]["feasible"][1]
    assert profiles["tiny-tp1"]["memory"] is None
    assert json.loads(as_json([plan(SWITCH)]))["ok"] is True
