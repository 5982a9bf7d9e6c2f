"""How much is sent at once, and when nothing is."""

import pytest

from muster.binding.concurrency_limit import Pace


def test_everything_is_used_while_the_api_server_takes_it() -> None:
    pace = Pace(64)
    for second in range(100):
        pace.eased(second)
    assert pace.window == 64


def test_a_push_back_halves_the_window_and_pauses_as_long_as_asked() -> None:
    pace = Pace(64)
    pace.strained(10.0, 10.5, after_seconds=3, unreachable=False)
    assert pace.window == 32
    assert pace.paused_until == 13.5


def test_requests_sent_together_cut_the_window_once() -> None:
    pace = Pace(64)
    for answered in (10.1, 10.2, 10.3):
        pace.strained(10.0, answered, after_seconds=1, unreachable=False)
    assert pace.window == 32
    assert pace.paused_until == pytest.approx(11.3), "the longest pause asked for counts"


def test_the_window_grows_back_by_one_per_window_of_successes() -> None:
    pace = Pace(64)
    pace.strained(0.0, 1.0, after_seconds=0, unreachable=False)
    for _ in range(33):
        pace.eased(2.0)
    assert pace.window == 33
    for _ in range(10_000):
        pace.eased(2.0)
    assert pace.window == 64, "never above what was set"


def test_successes_of_requests_sent_before_the_trouble_say_nothing() -> None:
    pace = Pace(64)
    pace.strained(5.0, 6.0, after_seconds=0, unreachable=False)
    for _ in range(1000):
        pace.eased(5.0)
    assert pace.window == 32


def test_after_an_outage_it_starts_small_and_grows_fast() -> None:
    pace = Pace(64)
    pace.strained(0.0, 1.0, after_seconds=None, unreachable=True)
    assert pace.window == 4
    for _ in range(60):
        pace.eased(2.0)
    assert pace.window == 64


def test_pauses_grow_while_nothing_gets_through_and_stay_bounded() -> None:
    pauses: list[float] = []
    for _ in range(200):
        pace = Pace(64)
        for second in range(12):
            pace.strained(second * 100.0, second * 100.0 + 1, after_seconds=None, unreachable=True)
            pauses.append(pace.paused_until - (second * 100.0 + 1))
    first, last = max(pauses[0::12]), max(pauses[11::12])
    assert first <= 0.05
    assert 0.05 < last <= 2.0


@pytest.mark.parametrize("most", [1, 2, 4])
def test_a_small_pipeline_stays_at_least_as_small_as_it_was_set(most: int) -> None:
    pace = Pace(most)
    pace.strained(0.0, 1.0, after_seconds=0, unreachable=True)
    assert pace.window == most
