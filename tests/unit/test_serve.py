"""What a profile becomes: command, environment, fingerprint, unit; and when a host serves as declared."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyinfra.api.config import Config
from pyinfra.api.host import Host
from pyinfra.api.state import State

from inventory import found, load, target
from roles.refusal import Refusal
from roles.serve.candidate import Candidate, is_current, leaving, outsiders
from roles.serve.declared import Declared, declared
from roles.serve.good import Acceptance, acceptances, accepted, previous
from roles.serve.unit import UnitState, argument, quoted
from roles.sglang.release import Release
from tests.unit.shipped import ROOT, rtx_pro_6000_x8

UNITS = Path(__file__).parent / "data/units"


def only_host(inventory: str, **data: object) -> Host:
    loaded = load(str(ROOT / inventory), data)
    State(loaded, Config())
    return next(iter(loaded))


def declaration(inventory: str, **data: object) -> Declared:
    return declared(only_host(inventory, **data))


@pytest.fixture(scope="module")
def gpu_host() -> Declared:
    return declaration("inventory/examples")


@pytest.fixture(scope="module")
def lab() -> Declared:
    return declaration("inventory/lab.yml")


@pytest.mark.parametrize("name", ["glm-5-nvfp4-tp8", "k26-ep8-tuned", "tiny-tp2"])
def test_a_units_text_is_known_to_the_character(name: str, gpu_host: Declared, lab: Declared) -> None:
    host = lab if name.startswith("tiny") else gpu_host
    expected = (UNITS / f"sglang-{name}.service").read_text().replace("{release}", Release.of("0.5.23").name)
    candidate = host.candidates[name]
    assert candidate.unit.content == expected.replace("{fingerprint}", candidate.command.fingerprint)


def test_a_value_reaches_the_unit_and_changes_the_fingerprint() -> None:
    one, other = (
        declaration("inventory/lab.yml", serve_environment={"X": value}).candidates["tiny-tp1"] for value in "ab"
    )
    assert "Environment=X=a" in one.unit.content
    assert one.command.fingerprint != other.command.fingerprint


@pytest.mark.parametrize(
    ("toolkit", "suffix"),
    [
        ({"cuda_toolkit": "pypi"}, ""),
        ({"cuda_toolkit": "apt"}, "-cuda-13.0"),
        ({"cuda_toolkit": "present", "cuda_home": "/opt/cuda-13.1"}, "-cuda-13.1"),
    ],
)
def test_kernels_compiled_by_one_release_and_toolkit_are_kept_apart(toolkit: dict[str, str], suffix: str) -> None:
    unit = declaration("inventory/examples", **toolkit).candidates["glm-5-nvfp4-tp8"].unit.content
    cache = f"slipway/{Release.of('0.5.23').name}{suffix}"
    for line in (
        f"CacheDirectory={cache}",
        f"WorkingDirectory=/var/cache/{cache}",
        f"Environment=HOME=/var/cache/{cache}",
    ):
        assert f"{line}\n" in unit


def test_only_what_the_process_gets_changes_the_fingerprint() -> None:
    one = declaration("inventory/lab.yml").candidates["tiny-tp1"]
    other = declaration("inventory/lab.yml", serve_stop_limit=7).candidates["tiny-tp1"]
    assert one.unit.content != other.unit.content
    assert one.command.fingerprint == other.command.fingerprint


def test_a_server_with_keys_reads_them_from_its_credentials() -> None:
    keys = {"serve_api_key": {"env": "A"}, "serve_admin_key": {"env": "B"}}
    without, one = declaration("inventory/lab.yml"), declaration("inventory/lab.yml", **keys)
    lines = one.candidates["tiny-tp1"].unit.content.splitlines()
    assert "LoadCredential=api-key:/etc/slipway/credentials/api-key" in lines
    assert "LoadCredential=admin-key:/etc/slipway/credentials/admin-key" in lines
    assert one.candidates["tiny-tp1"].command.argv[1:4] == ("-P", "/opt/slipway/host/roles/serve/launch.py", "serve")
    assert "LoadCredential" not in without.candidates["tiny-tp1"].unit.content
    assert one.candidates["tiny-tp1"].command.fingerprint != without.candidates["tiny-tp1"].command.fingerprint


def test_another_key_changes_nothing_but_what_the_process_holds(lab: Declared) -> None:
    """No fingerprint is made of a key: it could be found by trying keys."""
    one, other = (
        declaration("inventory/lab.yml", serve_api_key={"env": name}).candidates["tiny-tp1"] for name in "AB"
    )
    assert one == other
    wanted = lab.candidates["tiny-tp1"]
    rotated = {wanted.unit_name: seen(wanted, keys_current=False)}
    assert not is_current([wanted], rotated, fingerprints(wanted))


def test_profiles_for_other_hardware_have_no_unit_and_a_reason(gpu_host: Declared, lab: Declared) -> None:
    assert "glm-5-nvfp4-tp8" not in lab.candidates
    assert "needs GPUs" in lab.unsuitable["glm-5-nvfp4-tp8"][0]
    with pytest.raises(Refusal, match=r"host box: profile tiny-tp1: it serves on the CPU"):
        gpu_host.wanted(("tiny-tp1",), "box")


def test_memory_that_may_not_suffice_is_not_served_unless_it_is_accepted() -> None:
    little = {"gpus": 8, "memory_mib": 94000, "compute_capability": "12.0"}
    refusing = declaration("inventory/examples", hardware=little)
    with pytest.raises(Refusal, match=r"^host box: profile k26-tp8: its memory is tight: .*serve_accept_tight: true"):
        refusing.wanted(("k26-tp8",), "box")
    accepting = declaration("inventory/examples", hardware=little, serve_accept_tight=True)
    assert accepting.wanted(("k26-tp8",), "box") == [refusing.candidates["k26-tp8"]]


def test_every_profile_that_cannot_be_served_is_named(gpu_host: Declared) -> None:
    with pytest.raises(Refusal, match=r"(?s)profile tiny-tp1: .*\n.*profile tiny-tp2: "):
        gpu_host.wanted(("tiny-tp1", "k26-tp8", "tiny-tp2"), "box")


def test_a_model_that_brings_code_is_the_only_reason_to_run_it(gpu_host: Declared) -> None:
    trusting = {name for name, one in gpu_host.candidates.items() if ("--trust-remote-code",) in one.command.flags}
    assert trusting == {name for name in gpu_host.candidates if name.startswith("k26-")}


def test_gpus_that_nobody_declared_are_those_that_the_host_was_seen_to_have() -> None:
    host = only_host("inventory/examples", hardware=None)
    assert "not known" in declared(host).unsuitable["k26-tp8"][0]
    found(host, rtx_pro_6000_x8())
    assert "k26-tp8" in declared(host).candidates


def test_of_two_units_on_the_same_gpus_exactly_one_waits_for_the_other(gpu_host: Declared) -> None:
    """Both waiting would be a cycle, and neither waiting would load two models at once."""
    units = list(gpu_host.candidates.values())
    assert len(units) > 10
    for one in units:
        for other in units:
            if one is not other:
                assert other.unit_name in one.neighbours.all
                waits = (other.unit_name in one.neighbours.before, one.unit_name in other.neighbours.before)
                assert sorted(waits) == [False, True]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("plain-1.0/x", "plain-1.0/x"),
        ("two words", '"two words"'),
        ('say "hi"', '"say \\"hi\\""'),
        ("100%", "100%%"),
        ("a\\b", '"a\\\\b"'),
        ("line\nExecStartPre=/bin/false", '"line\\nExecStartPre=/bin/false"'),
        ("line\rExecStartPre=/bin/false", '"line\\rExecStartPre=/bin/false"'),
        ("", '""'),
    ],
)
def test_nothing_in_a_word_of_a_unit_is_expanded(text: str, word: str) -> None:
    assert quoted(text) == word


def test_variables_in_arguments_are_not_replaced() -> None:
    assert argument("$HOME ${PATH}") == '"$$HOME $${PATH}"'


def seen(candidate: Candidate, **changes: object) -> UnitState:
    values = {"enabled": True, "active": "active", "stale": False, "fingerprint": candidate.command.fingerprint}
    return UnitState(**{**values, **changes})  # type: ignore[arg-type]


def fingerprints(*candidates: Candidate) -> Mapping[str, str]:
    return {candidate.profile.name: candidate.command.fingerprint for candidate in candidates}


def test_a_host_is_current_only_if_what_runs_is_declared_enabled_and_accepted(lab: Declared) -> None:
    wanted, other = lab.candidates["tiny-tp1"], lab.candidates["tiny-tp2"]
    right = {wanted.unit_name: seen(wanted), other.unit_name: seen(other, enabled=False, active="inactive")}
    assert is_current([wanted], right, fingerprints(wanted))
    wrong: list[dict[str, UnitState]] = [
        {},
        {wanted.unit_name: seen(wanted, active="activating")},
        {wanted.unit_name: seen(wanted, enabled=False)},
        {wanted.unit_name: seen(wanted, fingerprint="0123")},
        {**right, other.unit_name: seen(other, active="inactive")},
        {**right, other.unit_name: seen(other, enabled=False)},
    ]
    assert not any(is_current([wanted], units, fingerprints(wanted)) for units in wrong)
    assert not is_current([wanted], right, {})
    assert not is_current([wanted], right, fingerprints(wanted, other))


def test_what_runs_otherwise_must_stop_but_not_a_start_of_the_declared_server(lab: Declared) -> None:
    wanted, other = lab.candidates["tiny-tp1"], lab.candidates["tiny-tp2"]

    def units(**changes: object) -> dict[str, UnitState]:
        return {wanted.unit_name: seen(wanted, **changes), other.unit_name: seen(other, active="inactive")}

    assert leaving([wanted], units()) == []
    assert leaving([wanted], units(active="activating")) == []
    assert leaving([wanted], units(active="activating", fingerprint=None)) == [wanted.unit_name]
    assert leaving([wanted], units(active="activating", keys_current=False)) == [wanted.unit_name]
    assert leaving([wanted], units(active="deactivating")) == [wanted.unit_name]
    assert leaving([other], units()) == [wanted.unit_name]


def test_two_profiles_share_a_cpu_but_no_port() -> None:
    host = only_host("inventory/lab.yml")
    one = target(host).profiles["tiny-tp1"]

    def ports(port: int) -> Declared:
        return declared(host, {"b": one.model_copy(update={"name": "b", "server": {**one.server, "port": port}})})

    ports(30001).wanted(("tiny-tp1", "b"), "box")
    with pytest.raises(Refusal, match=r"tiny-tp1 would use the GPUs or port of sglang-b\.service"):
        ports(30000).wanted(("tiny-tp1", "b"), "box")


def test_whatever_else_runs_or_would_start_at_boot_is_an_outsider(lab: Declared) -> None:
    wanted = lab.candidates["tiny-tp1"]
    units = {
        wanted.unit_name: seen(wanted),
        "sglang-old.service": seen(wanted, active="inactive"),
        "sglang-by-hand.service": seen(wanted, enabled=False, active="activating"),
        "sglang-idle.service": seen(wanted, enabled=False, active="failed"),
    }
    assert outsiders([wanted], units) == ["sglang-old.service", "sglang-by-hand.service"]


def history(*sets: Mapping[str, str]) -> list[str]:
    return [Acceptance(at=datetime(2026, 1, 1, tzinfo=UTC), profiles=dict(profiles)).line() for profiles in sets]


def test_previous_is_the_last_good_set_that_differs_from_now() -> None:
    lines = history({"a": "1"}, {"b": "1"}, {"a": "2"}, {"a": "3"})
    assert accepted(acceptances(lines)) == {"a": "3"}
    assert previous(acceptances(lines), "box") == ("b",)


def test_a_line_cut_off_by_a_crash_loses_only_itself() -> None:
    lines = history({"a": "1"}, {"b": "1"})
    assert accepted(acceptances([lines[0], lines[1][:20]])) == {"a": "1"}


def test_previous_without_a_history_is_refused() -> None:
    with pytest.raises(Refusal, match="host box: profile: `previous` needs an earlier good profile"):
        previous(acceptances(history({"a": "1"}, {"a": "2"})), "box")
