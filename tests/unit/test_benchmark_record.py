"""Records: what is kept can be read for ever, and nothing else is taken for one."""

import contextlib
import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roles.benchmark.benchmark import Benchmark
from roles.benchmark.name import Name, proof, proven
from roles.benchmark.record import Record, migrated
from roles.benchmark.sweep import Entry, Sweep
from roles.documents import Document
from roles.refusal import Refusal
from tests.unit.benchmark_records import point, record

TEXT = record([100, 101, 99], accepted=True).to_json()
SOURCE = "results/box/x.json"


def refused(text: str) -> str:
    with pytest.raises(Refusal) as refusal:
        Record.read_json(text, SOURCE)
    message = str(refusal.value)
    assert message.startswith(f"{SOURCE}: ")
    assert "\n" not in message
    return message


def changed(**values: object) -> str:
    return json.dumps({**json.loads(TEXT), **values})


def test_a_record_comes_back_as_it_was() -> None:
    assert Record.read_json(TEXT, SOURCE) == record([100, 101, 99], accepted=True)


@given(st.integers(0, len(TEXT.strip()) - 1))
@settings(max_examples=60)
def test_a_truncated_record_is_refused(length: int) -> None:
    refused(TEXT[:length])


@given(st.integers(0, len(TEXT) - 1), st.characters(codec="ascii"))
@settings(max_examples=150)
def test_a_record_with_a_wrong_character_is_refused_or_still_a_record(place: int, character: str) -> None:
    with contextlib.suppress(Refusal):
        Record.read_json(TEXT[:place] + character + TEXT[place + 1 :], SOURCE)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_a_figure_that_is_no_number_is_refused(word: str) -> None:
    assert word in refused(TEXT.replace("5.0", word, 1))


@pytest.mark.parametrize("version", [0, 2, 99, "1", None, True, 1.5])
def test_another_schema_version_is_refused_by_name(version: object) -> None:
    assert "schema_version: this Slipway reads benchmark records of version 1 to 1" in refused(
        changed(schema_version=version)
    )


@pytest.mark.parametrize("text", ["", "[]", "null", '"x"', "{}"])
def test_what_is_no_record_is_refused(text: str) -> None:
    refused(text)


def test_an_unknown_or_missing_key_is_named() -> None:
    assert "colour" in refused(changed(colour="blue"))
    document = json.loads(TEXT)
    del document["fingerprint"]
    assert "fingerprint: required" in refused(json.dumps(document))


def test_records_of_older_schemas_go_through_every_migration() -> None:
    def second(document: dict[str, Any]) -> dict[str, Any]:
        return {"schema_version": 2, "machine": document["box"]}

    def third(document: dict[str, Any]) -> dict[str, Any]:
        return {**document, "schema_version": 3, "machine": document["machine"].upper()}

    migrations = {1: second, 2: third}
    assert migrated({"schema_version": 1, "box": "a"}, SOURCE, migrations) == {"schema_version": 3, "machine": "A"}
    assert migrated({"schema_version": 3}, SOURCE, migrations) == {"schema_version": 3}
    with pytest.raises(Refusal, match="version 1 to 3, not 4"):
        migrated({"schema_version": 4}, SOURCE, migrations)


def test_a_name_says_what_is_proven_and_is_read_back() -> None:
    one = record([100] * 3, profile="k26.ep8-tuned", accepted=True)
    assert one.name == "20261101T000000Z.k26.ep8-tuned.0123456789ab.full.accepted.json"
    assert str(Name.parsed(one.name)) == one.name
    assert record([100] * 3).name.endswith(".full.failed.json")


@pytest.mark.parametrize("text", ["", "notes.txt", "20261101T000000Z.x.0123456789ab.full.json", ".x.new"])
def test_other_files_are_no_records(text: str) -> None:
    assert Name.parsed(text) is None


def name(day: int, outcome: Any = "accepted", level: Any = "full", proof: str = "aaaaaaaaaaaa") -> Name:
    return Name(datetime(2026, 11, day, tzinfo=UTC), "tiny", proof, level, outcome)


def test_a_server_is_proven_by_its_newest_record() -> None:
    assert proven([name(1), name(2)], "aaaaaaaaaaaa", "full") == name(2)
    assert proven([name(1), name(2, "failed")], "aaaaaaaaaaaa", "full") is None
    assert proven([name(1, proof="bbbbbbbbbbbb")], "aaaaaaaaaaaa", "full") is None
    assert proven([], "aaaaaaaaaaaa", "full") is None


def test_a_full_measurement_proves_a_quick_one_and_not_the_reverse() -> None:
    assert proven([name(1)], "aaaaaaaaaaaa", "quick") == name(1)
    assert proven([name(1, level="quick")], "aaaaaaaaaaaa", "full") is None


def test_a_proof_changes_with_server_machine_demands_and_references() -> None:
    block = Benchmark.read({}, "x")
    proofs = {
        proof("f", "H200, 580", block, {}),
        proof("g", "H200, 580", block, {}),
        proof("f", "H200, 590", block, {}),
        proof("f", "H200, 580", Benchmark.read({"tolerance": 0.1}, "x"), {}),
        proof("f", "H200, 580", block, {1: 65.0}),
    }
    assert len(proofs) == 5
    assert proof("f", "H200, 580", Benchmark.read({}, "x"), {}) in proofs


@pytest.mark.parametrize("document", [Record, Sweep, Entry])
def test_every_key_is_documented(document: type[Document]) -> None:
    text = (Path(__file__).parents[2] / "docs/records.md").read_text()
    assert [name for name in document.model_fields if f"`{name}`" not in text] == []


def test_a_figure_needs_all_repeats() -> None:
    whole = record([100, 110, 90])
    assert math.isclose(whole.figure(point(), "output_throughput").median, 100)  # type: ignore[union-attr]
    lacking = whole.rows[1].model_copy(update={"result": {}})
    assert whole.model_copy(update={"rows": (*whole.rows[:1], lacking)}).figure(point(), "output_throughput") is None
