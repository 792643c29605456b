"""The catalogue of SGLang's flags: what a profile's `server:` block may say, and the command line made of it."""

import argparse

import pytest

from roles.refusal import Refusal
from roles.sglang.catalogue import Catalogue, Flag, versions
from roles.sglang.introspect import catalogue

CATALOGUE = Catalogue.load("0.5.23")


def errors(**server: object) -> tuple[str, ...]:
    return CATALOGUE.check(server).errors


def warnings(**server: object) -> tuple[str, ...]:
    return CATALOGUE.check(server).warnings


def test_a_correct_block_has_no_findings() -> None:
    server = {
        "tp_size": 8,
        "mem_fraction_static": 0.93,
        "trust_remote_code": True,
        "attention_backend": "triton",
        "context_length": "128k",
        "numa_node": [0, 0, 1, 1],
        "model_loader_extra_config": {"num_threads": 16},
        "lora_strict_loading": True,
        "chunked_prefill_size": -1,
    }
    findings = CATALOGUE.check(server)
    assert (findings.errors, findings.warnings) == ((), ())


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("max_runing_requests", 64, "SGLang 0.5.23 has no such flag; did you mean max_running_requests?"),
        ("zzz", 1, "SGLang 0.5.23 has no such flag; its `sglang serve --help` lists all"),
        ("cuda_graph_max_bs", 64, "gone from SGLang 0.5.23; use cuda_graph_max_bs_decode"),
        ("nsa_prefill_backend", "tilelang", "gone from SGLang 0.5.23; use dsa_prefill_backend"),
        ("tp", 8, "not a full name; SGLang 0.5.23 has tp_size"),
        ("pp", 8, "not a full name; SGLang 0.5.23 has pp_async_batch_depth, pp_max_micro_batch_size, pp_size"),
        ("tensor_parallel_size", 8, "another name of tp_size; use that one"),
        ("no_lora_strict_loading", True, "write lora_strict_loading: false"),
        ("tp_size", "8", "accepted is an integer; not '8'"),
        ("tp_size", 8.0, "accepted is an integer; not 8.0"),
        ("tp_size", True, "accepted is an integer; not True"),
        ("tp_size", None, "accepted is an integer; not None"),
        ("mem_fraction_static", "0.9", "accepted is a number; not '0.9'"),
        ("context_length", "128 k", "accepted is an integer, or text like 128k; not '128 k'"),
        ("trust_remote_code", "yes", "accepted is true or false; not 'yes'"),
        ("served_model_name", {"a": 1}, "accepted is text; not {'a': 1}"),
        ("numa_node", 0, "accepted is a list, each item an integer; not 0"),
        ("numa_node", ["a"], "accepted is an integer; not 'a'"),
        ("numa_node", [], "accepted is a list, each item an integer; not []"),
        ("mm_process_config", "{", "accepted is a mapping, a list, or JSON as text; not '{'"),
        ("attention_backend", "tritn", "unknown value 'tritn'; did you mean triton?"),
    ],
)
def test_what_sglang_would_not_take_is_an_error(name: str, value: object, sentence: str) -> None:
    assert errors(**{name: value}) == (f"server.{name}: {sentence}",)


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("context_length", 0, "at least 1"),
        ("context_length", "0k", "at least 1"),
        ("max_total_tokens", -5, "at least 1"),
        ("max_prefill_tokens", 0, "at least 1"),
        ("max_running_requests", 0, "at least 1"),
        ("page_size", -64, "at least 1"),
        ("cuda_graph_max_bs_decode", 0, "at least 1"),
        ("speculative_num_steps", 0, "at least 1"),
        ("speculative_eagle_topk", 0, "at least 1"),
        ("speculative_num_draft_tokens", -1, "at least 1"),
        ("chunked_prefill_size", 0, "at least 1, or -1 for prompts in one step"),
        ("chunked_prefill_size", -2, "at least 1, or -1 for prompts in one step"),
        ("served_model_name", "", "a name without blanks and colons"),
        ("served_model_name", "kimi k2", "a name without blanks and colons"),
        ("served_model_name", "kimi\n", "a name without blanks and colons"),
        ("served_model_name", "kimi:lora", "a name without blanks and colons"),
    ],
)
def test_what_no_server_can_work_with_is_an_error(name: str, value: object, accepted: str) -> None:
    assert errors(**{name: value}) == (f"server.{name}: accepted is {accepted}; not {value!r}",)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("context_length", 10),
        ("context_length", "0.5M"),
        ("page_size", 1),
        ("chunked_prefill_size", 8192),
        ("served_model_name", "moonshotai/Kimi-K2.6_fast"),
    ],
)
def test_the_least_that_a_server_can_work_with_is_accepted(name: str, value: object) -> None:
    assert errors(**{name: value}) == ()


def test_a_reserved_flag_is_an_error_with_its_reason() -> None:
    findings = CATALOGUE.check({"api_key": "x"}, reserved={"api_key": "secrets do not stand in a profile"})
    assert findings.errors == ("server.api_key: not set in a profile; secrets do not stand in a profile",)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("num_continuous_decode_steps", 8, "has no effect; nothing in SGLang 0.5.23 reads it"),
        ("enable_dp_attention", True, "deprecated; use --attn-dp-size <dp-size>"),
        ("tool_call_parser", "glm45", "glm45 is deprecated; use glm"),
    ],
)
def test_what_sglang_takes_only_for_now_or_to_no_effect_is_a_warning(name: str, value: object, sentence: str) -> None:
    assert errors(**{name: value}) == ()
    assert warnings(**{name: value}) == (f"server.{name}: {sentence}",)


def test_the_default_of_a_flag_without_effect_is_not_warned_about() -> None:
    assert warnings(num_continuous_decode_steps=1) == ()


def test_flags_that_exclude_each_other_are_an_error() -> None:
    assert errors(speculative_algorithm="DFLASH", pp_size=2) == (
        "server.speculative_algorithm: with pp_size above 1 only EAGLE is accepted",
    )
    assert errors(speculative_algorithm="DFLASH", pp_size=1) == ()
    assert errors(speculative_algorithm="EAGLE", pp_size=2) == ()


def test_the_command_line_has_full_names_in_a_fixed_order() -> None:
    server = {
        "tp_size": 8,
        "trust_remote_code": True,
        "enable_metrics": False,
        "lora_strict_loading": False,
        "numa_node": [0, 1],
        "model_loader_extra_config": {"num_threads": 16, "enable_multithread_load": True},
        "mem_fraction_static": 0.93,
        "chunked_prefill_size": -1,
    }
    expected = (
        ("--chunked-prefill-size", "-1"),
        ("--no-lora-strict-loading",),
        ("--mem-fraction-static", "0.93"),
        ("--model-loader-extra-config", '{"enable_multithread_load":true,"num_threads":16}'),
        ("--numa-node", "0", "1"),
        ("--tp-size", "8"),
        ("--trust-remote-code",),
    )
    assert CATALOGUE.flags(server) == expected
    assert CATALOGUE.flags(dict(reversed(server.items()))) == expected


def test_a_value_that_looks_like_a_flag_stays_a_value() -> None:
    assert CATALOGUE.flags({"served_model_name": "--x"}) == (("--served-model-name=--x",),)


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(Refusal, match=r"no catalogue of 0\.5\.24; did you mean 0\.5\.23\?"):
        Catalogue.load("0.5.24")


@pytest.mark.parametrize("version", versions())
def test_the_notes_of_a_version_speak_of_its_flags(version: str) -> None:
    known = Catalogue.load(version)
    for name in known._gone:
        assert name not in known, f"{name} is not gone"
    conditions = [caution["flag"] for caution in known._cautions]
    conditions += [condition for conflict in known._conflicts for condition in conflict["flags"]]
    for condition in conditions:
        name, _, values = condition.partition("=")
        assert name in known, f"{name} is no flag of {version}"
        for value in filter(None, values.split("|")):
            assert known[name].problem(value) is None
    for name in known._values:
        assert name in known, f"{name} is no flag of {version}"
    for note in [*known._gone.values(), *known._values.values(), *known._cautions, *known._conflicts]:
        assert note["source"]


def test_a_release_with_other_flags_shows_which_profiles_break() -> None:
    newer = Catalogue(
        "0.6", {"tensor_parallel": {"type": "int"}}, {"gone": {"tp_size": {"instead": "use tensor_parallel"}}}
    )
    assert newer.check({"tp_size": 8}).errors == ("server.tp_size: gone from SGLang 0.6; use tensor_parallel",)


class Store(argparse.Action):
    """A custom action, as SGLang has some."""

    def __init__(self, *args: object, new_flag: str | None = None, **kwargs: object) -> None:
        self.new_flag = new_flag
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]

    def __call__(self, *_: object) -> None: ...


class DeprecatedStore(Store):
    """Named as SGLang names its own."""


def human_readable_int(text: str) -> int:
    return int(text)


def test_introspection_describes_every_shape_of_flag() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--tp-size", "--tensor-parallel-size", type=int, default=1)
    parser.add_argument("--model-path", "--model", required=True)
    parser.add_argument("--on", action="store_true")
    parser.add_argument("--both", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--nodes", type=int, nargs="+")
    parser.add_argument("--kind", choices={"b", "a"})
    parser.add_argument("--length", type=human_readable_int)
    parser.add_argument("--extra", help="A JSON string.", default="{}")
    parser.add_argument("--old", action=DeprecatedStore, nargs=0, new_flag="--new")
    parser.add_argument("--older", action="store_true", help="(Deprecated: use --new=auto) Old.")
    parser.add_argument("--oldest", action="store_true", help="Deprecated.")
    assert catalogue(parser) == {
        "both": {"type": "switch", "default": True},
        "extra": {"type": "text or json", "default": "{}"},
        "kind": {"type": "text", "choices": ["a", "b"]},
        "length": {"type": "size"},
        "model_path": {"type": "text", "aliases": ["model"], "required": True},
        "nodes": {"type": "int", "nargs": "+"},
        "old": {"type": "flag", "deprecated": "--new"},
        "older": {"type": "flag", "deprecated": "--new=auto"},
        "oldest": {"type": "flag", "deprecated": ""},
        "on": {"type": "flag"},
        "tp_size": {"type": "int", "aliases": ["tensor_parallel_size"], "default": 1},
    }


def test_a_flag_with_an_optional_value_can_stand_alone() -> None:
    flag = Flag("model_checksum", "text", nargs="?")
    assert flag.problem(True) is None
    assert flag.words(True) == ("--model-checksum",)
    assert flag.words("sums.json") == ("--model-checksum", "sums.json")
