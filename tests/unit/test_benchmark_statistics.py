"""What can be trusted of figures, on series with known answers."""

import random

import pytest

from roles.benchmark.statistics import (
    FALSE_ALARMS,
    RESTART_NOISE,
    Figure,
    drop,
    equal,
    noise_band,
    pareto,
    ranking,
    restart_noise,
)

THROUGHPUT = "output_throughput"
NOISE = RESTART_NOISE[THROUGHPUT]


def spread(centre: float, share: float) -> Figure:
    """Three repeats around `centre` whose coefficient of variation is `share`."""
    return Figure((centre * (1 - share), centre, centre * (1 + share)))


def test_interval_is_students_around_the_median() -> None:
    low, high = Figure((98.0, 100.0, 102.0)).interval
    assert (low, high) == pytest.approx((95.03, 104.97), abs=0.01)  # 4.303 * 2 / sqrt(3) to each side


def test_a_single_value_has_an_interval_without_width() -> None:
    assert Figure((7.0,)).interval == (7.0, 7.0)


def test_a_drop_of_3_percent_is_lost_in_5_percent_noise_and_one_of_10_percent_is_not() -> None:
    before = spread(100, 0.05)
    for lost, seen in ((0.03, False), (0.10, True)):
        after = spread(100 * (1 - lost), 0.05)
        assert (drop(before, after) > noise_band(before, after, NOISE)) is seen, lost


@pytest.mark.parametrize("repeats", [3, 5])
def test_identical_servers_are_flagged_in_at_most_three_of_a_hundred_comparisons(repeats: int) -> None:
    dice = random.Random(repeats)

    def measured() -> Figure:
        restart = dice.gauss(100, 100 * NOISE)
        return Figure(tuple(dice.gauss(restart, 0.01 * restart) for _ in range(repeats)))

    pairs = [(measured(), measured()) for _ in range(2000)]
    flagged = sum(drop(before, after) > noise_band(before, after, NOISE) for before, after in pairs)
    assert flagged / len(pairs) <= FALSE_ALARMS + 0.012  # three standard errors of the count


def test_several_comparisons_together_keep_the_rate_of_false_alarms() -> None:
    dice = random.Random(6)

    def restarted() -> list[Figure]:
        return [Figure((dice.gauss(100, 100 * NOISE),)) for _ in range(6)]

    runs = [list(zip(restarted(), restarted(), strict=True)) for _ in range(2000)]
    flagged = sum(any(drop(a, b) > noise_band(a, b, NOISE, 6) for a, b in run) for run in runs)
    assert flagged / len(runs) <= FALSE_ALARMS + 0.012


def test_a_host_without_history_has_the_noise_that_was_measured_elsewhere() -> None:
    assert restart_noise(THROUGHPUT, []) == pytest.approx(NOISE)
    assert restart_noise(THROUGHPUT, [[100.0]]) == pytest.approx(NOISE)


def test_a_long_history_outweighs_what_was_measured_elsewhere() -> None:
    steady, restless = [100.0, 100.2, 99.8, 100.1] * 10, [100.0, 110.0, 90.0, 105.0] * 10
    assert restart_noise(THROUGHPUT, [steady]) < 0.012
    assert restart_noise(THROUGHPUT, [restless]) > 0.06


def test_servers_are_not_mixed_when_noise_is_learnt() -> None:
    """Two servers that differ are two histories, not one with a wide spread."""
    assert restart_noise(THROUGHPUT, [[100.0] * 9, [300.0] * 9]) < NOISE


def test_a_host_that_swings_by_half_still_tells_a_tenth_from_the_whole() -> None:
    noise = restart_noise(THROUGHPUT, [[700.0, 750.0, 180.0, 250.0, 450.0] * 4])
    assert noise > 0.5
    assert equal(spread(450, 0.1), spread(250, 0.1), noise)
    assert not equal(spread(450, 0.1), spread(33, 0.1), noise)


def test_equal_within_noise_is_symmetric() -> None:
    best, near, far = spread(100, 0.01), spread(97, 0.01), spread(80, 0.01)
    assert equal(best, near, NOISE)
    assert equal(near, best, NOISE)
    assert not equal(best, far, NOISE)
    assert not equal(far, best, NOISE)


def test_ranking_gives_equal_names_one_place() -> None:
    figures = {"slow": spread(50, 0.01), "a": spread(100, 0.01), "b": spread(98, 0.01), "mid": spread(80, 0.01)}
    assert [(entry.place, entry.name) for entry in ranking(figures, NOISE)] == [
        (1, "a"),
        (1, "b"),
        (3, "mid"),
        (4, "slow"),
    ]


def test_ranking_can_put_the_lowest_first() -> None:
    figures = {"slow": spread(50, 0.01), "fast": spread(10, 0.01)}
    assert [entry.name for entry in ranking(figures, NOISE, highest=False)] == ["fast", "slow"]


def test_a_chain_of_small_differences_is_no_single_place() -> None:
    """Each is equal to the next, but the last is far from the first."""
    figures = {str(value): spread(value, 0.001) for value in (100, 95, 90, 85, 80)}
    assert {entry.place for entry in ranking(figures, NOISE)} != {1}


def test_pareto_keeps_what_nothing_beats_in_both() -> None:
    series = {
        "latency": [(65.0, 65.0), (5.0, 300.0)],
        "throughput": [(26.0, 26.0), (10.0, 800.0)],
        "none": [(4.0, 30.0)],
    }

    def beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
        return one != other and one[0] >= other[0] and one[1] >= other[1]

    assert pareto(series, beats) == {"latency": [(65.0, 65.0)], "throughput": [(10.0, 800.0)]}
