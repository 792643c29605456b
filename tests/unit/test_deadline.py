"""How long a start may take."""

from roles.serve.deadline import ASSUMED_RATE, Start

GIANT = Start(594 * 10**9, on_gpus=True)
TINY = Start(5 * 10**6, on_gpus=False)


def test_it_grows_with_the_bytes_and_shrinks_with_a_faster_disk() -> None:
    slow, fast = GIANT.deadline(0.5e9).seconds, GIANT.deadline(5e9).seconds

    assert Start(5 * 10**6, on_gpus=True).deadline().seconds < fast < slow


def test_reading_alone_fits_in_it_twice() -> None:
    assert Start(594 * 10**9, on_gpus=False).deadline(1e9).seconds > 2 * 594


def test_a_measured_start_of_a_large_host_fits_in_it() -> None:
    # Eight RTX PRO 6000 were reported to need 7 to 8 minutes with warm caches.
    assert GIANT.deadline(5e9).seconds > 8 * 60


def test_a_tiny_model_without_graphs_gets_the_minimum() -> None:
    assert TINY.deadline().seconds == 300


def test_a_disk_that_nobody_measured_is_taken_for_a_slow_one() -> None:
    assert GIANT.deadline().seconds == GIANT.deadline(ASSUMED_RATE).seconds


def test_the_sentence_says_what_it_is_made_of_and_whether_the_disk_was_measured() -> None:
    assert "594.0 GB at half of 2.5 GB/s (measured)" in GIANT.deadline(2.5e9).sentence
    assert "(assumed)" in GIANT.deadline().sentence
    assert "graphs" not in TINY.deadline().sentence


def test_a_setting_replaces_it_whatever_the_disk() -> None:
    own = Start(594 * 10**9, on_gpus=True, limit=90)
    assert own.deadline(0.1e9).seconds == 90
    assert own.deadline().sentence == "90 s, as set"
