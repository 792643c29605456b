"""Why a server failed. The logs in data/failures were written by real servers, on one GPU and on the CPU."""

import re
from pathlib import Path

import pytest

from roles.cuda.settings import CudaSettings
from roles.serve.failure import UNKNOWN, Signature, explain, signatures
from roles.serve.settings import ServeSettings
from roles.sglang.catalogue import Catalogue, versions

LOGS = Path(__file__).parent / "data" / "failures"

REAL = {
    "ambiguous_flag": ("ambiguous flag", "--cuda-graph-max-bs-decode"),
    "cpu_dies_in_first_forward_pass": ("first forward pass", "index -1 is out of bounds for dimension 1 with size 8"),
    "cpu_flags_refused": ("flags refused", "chunked_prefill_size must be divisible by page_size"),
    "cpu_hub_access": ("hub access needed", "outgoing traffic has been disabled"),
    "cpu_main_process_killed": ("a process was killed", "Main process exited, code=killed, status=9/KILL"),
    "cpu_peer_killed": ("a rank lost its peers", "Connection reset by peer"),
    "cpu_rank_killed": ("a process was killed", "Rank 0 scheduler died during initialization (exit code: -9)"),
    "cpu_unknown_flag": ("unknown flag", "--no-such-flag 3"),
    "cpu_weights_truncated": ("weights damaged", "file not fully covered"),
    "fraction_too_high": ("out of memory in the KV pool", "Tried to allocate 6.55 GiB"),
    "fraction_too_low": ("memory fraction too low", "Raise --mem-fraction-static above 0.567"),
    "out_of_memory_in_graphs": ("out of memory capturing graphs", "Tried to allocate 10.52 GiB"),
    "out_of_memory_in_load": ("out of memory loading weights", "Tried to allocate 21.00 GiB"),
    "out_of_memory_in_load_of_experts": ("out of memory loading weights", "Tried to allocate 2.62 GiB"),
    "port_in_use": ("port in use", "[Errno 98]"),
    "weights_missing": ("weights missing", "Cannot find any model weights with `/srv/models/A2`"),
    "wrong_type": ("wrong flag value", "invalid float value: 'lots'"),
}


def log(name: str) -> str:
    return (LOGS / f"{name}.txt").read_text()


@pytest.mark.parametrize(("name", "expected"), REAL.items())
def test_real_failures_are_recognised_by_the_line_that_says_why(name: str, expected: tuple[str, str]) -> None:
    kind, evidence = expected

    explanation = explain(log(name), result="signal", exit_status=9)

    assert explanation.kind == kind
    assert evidence in explanation.evidence


@pytest.mark.parametrize("signature", signatures(), ids=lambda signature: signature.kind)
def test_every_signature_explains_its_own_example(signature: Signature) -> None:
    explanation = explain(signature.example)

    assert (explanation.kind, explanation.source) == (signature.kind, signature.source)
    assert explanation.evidence == signature.example.splitlines()[-1].strip()


@pytest.mark.parametrize("signature", signatures(), ids=lambda signature: signature.kind)
def test_what_a_sentence_quotes_is_found_by_the_pattern(signature: Signature) -> None:
    quoted = set(re.findall(r"\{(\w+)\}", signature.cause + signature.advice))

    assert quoted <= set(signature.pattern.groupindex)
    assert not re.search(r"\{\w+\}", explain(signature.example).cause)


def test_the_two_memory_failures_get_opposite_advice() -> None:
    assert "raise `mem_fraction_static` above 0.567" in explain(log("fraction_too_low")).advice
    assert "lower `mem_fraction_static`" in explain(log("fraction_too_high")).advice


def test_memory_that_another_process_holds_is_not_blamed_on_the_profile() -> None:
    journal = log("fraction_too_high").replace(
        "Including non-PyTorch memory", "Process 4242 has 80.00 GiB memory in use. Including non-PyTorch memory"
    )

    assert explain(journal).kind == "GPU memory held by another process"


def test_the_first_cause_in_time_wins_over_later_and_more_specific_ones() -> None:
    late = "[2026-11-30 19:50:00] Rank 1: RuntimeError: NCCL error: unhandled system error\n"

    assert explain(log("weights_missing") + late).kind == "weights missing"
    assert explain(late + log("weights_missing")).kind == "NCCL failure"


def test_a_consequence_explains_only_what_nothing_else_does() -> None:
    lost = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4242\n"

    assert explain(lost + log("fraction_too_low")).kind == "memory fraction too low"
    assert explain(lost).kind == "a rank lost its peers"


def test_sglangs_hint_at_the_oom_killer_is_not_proof_of_it() -> None:
    hint = "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). the OS OOM killer.\n"

    assert explain(hint).kind == "a process was killed"
    assert explain(hint, result="oom-kill").kind == "out of host memory"


def test_the_oom_killer_is_known_from_systemds_line_too() -> None:
    said = "sglang-x.service: A process of this unit has been killed by the OOM killer."

    assert explain(f"{log('cpu_healthy')}{said}\n").evidence == said


def test_a_start_that_took_too_long_is_explained_by_what_it_was_doing() -> None:
    journal = log("cpu_healthy").partition("Load weight end")[0]

    explanation = explain(journal, result="timeout")

    assert explanation.kind == "not ready in time"
    assert "loading weights, 1 of 1 files" in explanation.cause


def test_a_server_that_has_loaded_and_never_binds_is_explained_without_a_word_of_its_own() -> None:
    journal = log("port_in_use").partition("ERROR:")[0]

    assert explain(journal, result="success").kind == "never bound its port"
    assert explain(journal, result="signal", exit_status=9).kind == "a process was killed"


def test_a_server_that_ends_itself_was_not_killed_from_outside() -> None:
    own = "[2026-11-30 19:50:00] kill_process_tree called: parent_pid=7, include_parent=True, pid=7\n"
    journal = log("cpu_main_process_killed")

    assert explain(own + journal, result="signal", exit_status=9).kind == UNKNOWN
    assert explain(journal, result="exit-code", exit_status=1).kind == UNKNOWN


def test_a_cause_in_the_journal_explains_a_timeout() -> None:
    assert explain(log("port_in_use"), result="timeout").kind == "port in use"


def test_an_unknown_failure_shows_the_first_error_not_the_last() -> None:
    journal = """\
[2026-11-30 19:50:00] Load weight begin. avail mem=93.30 GB
[2026-11-30 19:50:01 TP3] Scheduler hit an exception: Traceback (most recent call last):
  File "scheduler.py", line 1, in run
    raise KeyError("layers.7.gate")
KeyError: 'layers.7.gate'

[2026-11-30 19:50:01] Received sigquit from a child process. It usually means the child failed.
[2026-11-30 19:50:02] ERROR: the last one
"""
    explanation = explain(journal, result="signal", exit_status=9)

    assert explanation.kind == UNKNOWN
    assert explanation.evidence == "KeyError: 'layers.7.gate'"
    assert "result signal, exit status 9" in explanation.cause
    assert "loading weights" in explanation.cause


def test_a_healthy_log_holds_no_error() -> None:
    explanation = explain(log("cpu_healthy"), result="exit-code", exit_status=1)

    assert (explanation.kind, explanation.evidence) == (UNKNOWN, "")
    assert "the journal shows no error" in explanation.cause
    assert "from that line on" not in explanation.advice


def test_a_line_of_any_length_is_read_in_no_time() -> None:
    # SGLang logs its arguments in one line of 15 kB: a pattern that backtracks would take minutes.
    journal = "server_args={" + "'some_key': 'no.such-value 7%/x', " * 2_000 + "}\n"

    assert explain(journal * 3).kind == UNKNOWN


def test_advice_names_only_settings_and_flags_that_exist() -> None:
    catalogue = Catalogue.load(versions()[-1])
    settings = {*ServeSettings.variables(), *CudaSettings.variables()}
    advised = {
        name
        for signature in signatures()
        for name in re.findall(r"`([a-z0-9]+(?:_[a-z0-9]+)+)\b[^`]*`", signature.advice)
    }

    assert "mem_fraction_static" in advised
    assert [name for name in advised if name not in settings and name not in catalogue] == []
