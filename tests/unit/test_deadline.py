"""How long a start may take."""

from roles.serve.deadline import deadline

GIANT = 594 * 10**9
TINY = 5 * 10**6


def test_it_grows_with_the_bytes_and_shrinks_with_a_faster_disk() -> None:
    slow, fast = deadline(GIANT, 0.5e9), deadline(GIANT, 5e9)

    assert deadline(TINY).seconds < fast.seconds < deadline(GIANT).seconds < slow.seconds


def test_reading_alone_fits_in_it_twice() -> None:
    assert deadline(GIANT, 1e9, graphs=False, compile_kernels=False).seconds > 2 * 594


def test_a_measured_start_of_a_large_host_fits_in_it() -> None:
    # Eight RTX PRO 6000 were reported to need 7 to 8 minutes with warm caches.
    assert deadline(GIANT, 5e9, compile_kernels=False).seconds > 8 * 60


def test_a_tiny_model_without_graphs_gets_the_minimum() -> None:
    assert deadline(TINY, graphs=False, compile_kernels=False).seconds == 300


def test_the_sentence_says_what_it_is_made_of_and_whether_the_disk_was_measured() -> None:
    assert "594.0 GB at half of 2.5 GB/s (measured)" in deadline(GIANT, 2.5e9).sentence
    assert "(assumed)" in deadline(GIANT).sentence
    assert "graphs" not in deadline(GIANT, graphs=False).sentence


def test_a_setting_replaces_it() -> None:
    assert deadline(GIANT, override=90).seconds == 90
    assert deadline(GIANT, override=90).sentence == "90 s, as set"
