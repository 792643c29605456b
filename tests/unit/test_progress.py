"""How far a starting server is, read from real logs and from lines as SGLang writes them."""

from pathlib import Path

import pytest

from roles.serve.progress import Phase, Progress, progress

LOGS = Path(__file__).parent / "data" / "failures"


def phases(name: str) -> list[Phase]:
    """The phases that a log goes through, each once."""
    current, seen = Progress(), [Phase.STARTING]
    for line in (LOGS / f"{name}.txt").read_text().splitlines():
        current = current.after(line)
        if current.phase != seen[-1]:
            seen.append(current.phase)
    return seen


def test_a_server_on_the_cpu_goes_through_the_phases_in_order() -> None:
    assert phases("cpu_healthy") == [
        Phase.STARTING,
        Phase.CONNECTING,
        Phase.WEIGHTS,
        Phase.KV_POOL,
        Phase.BINDING,
        Phase.WARM_UP,
        Phase.READY,
    ]


def test_a_server_on_a_taken_port_never_gets_beyond_binding() -> None:
    assert phases("port_in_use")[-2:] == [Phase.GRAPHS, Phase.BINDING]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("Loading safetensors checkpoint shards:  19% Completed | 12/64 [00:05<00:21,  2.4it", "12 of 64 files"),
        ("Multi-thread loading shards:  50% Completed | 32/64 [00:05<00:05,  6.4it/s]", "32 of 64 files"),
    ],
)
def test_weights_are_counted_in_files(line: str, sentence: str) -> None:
    assert str(progress(["Load weight begin. avail mem=93.30 GB", line])) == f"loading weights, {sentence}"


def test_graphs_are_counted_and_the_last_state_of_a_redrawn_bar_counts() -> None:
    bar = (
        "Capturing batches (bs=4 avail_mem=109.07 GB):  89%|████████▉ | 32/36 [00:00<00:00, 55.73it/s]\r"
        "Capturing batches (bs=1 avail_mem=109.07 GB):  97%|█████████▋| 35/36 [00:00<00:00, 42.34it/s]"
    )

    assert str(progress([bar])) == "compiling kernels and capturing graphs, 35 of 36 graphs"


def test_the_first_bar_has_no_rate_and_counts_all_the_same() -> None:
    bar = "Multi-thread loading shards:   0% Completed | 0/64 [00:00<?, ?it/s]"

    assert str(progress([bar])) == "loading weights, 0 of 64 files"


def test_a_slower_rank_does_not_take_the_progress_back() -> None:
    lines = ["[TP0] Load weight end. elapsed=1 s", "[TP3] Load weight begin. avail mem=93.30 GB"]

    assert progress(lines).phase is Phase.KV_POOL


def test_the_last_word_of_the_server_is_ready() -> None:
    assert str(progress(["The server is fired up and ready to roll!"])) == "ready"
