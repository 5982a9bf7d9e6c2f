"""Window of concurrent requests, and pauses."""

import pytest

from muster.binding.concurrency_limit import ConcurrencyLimit


def test_window_stays_full_while_requests_succeed() -> None:
    limit = ConcurrencyLimit(64)
    for second in range(100):
        limit.succeeded(second)
    assert limit.window == 64


def test_throttling_halves_the_window_and_pauses_as_requested() -> None:
    limit = ConcurrencyLimit(64)
    limit.throttled(10.0, 10.5, after_seconds=3, unreachable=False)
    assert limit.window == 32
    assert limit.paused_until == 13.5


def test_requests_of_one_window_cut_it_once() -> None:
    limit = ConcurrencyLimit(64)
    for answered in (10.1, 10.2, 10.3):
        limit.throttled(10.0, answered, after_seconds=1, unreachable=False)
    assert limit.window == 32
    assert limit.paused_until == pytest.approx(11.3), "the longest requested pause wins"


def test_window_grows_by_one_per_window_of_successes() -> None:
    limit = ConcurrencyLimit(64)
    limit.throttled(0.0, 1.0, after_seconds=0, unreachable=False)
    for _ in range(33):
        limit.succeeded(2.0)
    assert limit.window == 33
    for _ in range(10_000):
        limit.succeeded(2.0)
    assert limit.window == 64, "never above the maximum"


def test_successes_of_requests_sent_before_the_cut_are_ignored() -> None:
    limit = ConcurrencyLimit(64)
    limit.throttled(5.0, 6.0, after_seconds=0, unreachable=False)
    for _ in range(1000):
        limit.succeeded(5.0)
    assert limit.window == 32


def test_window_restarts_small_after_an_outage_and_grows_fast() -> None:
    limit = ConcurrencyLimit(64)
    limit.throttled(0.0, 1.0, after_seconds=None, unreachable=True)
    assert limit.window == 4
    for _ in range(60):
        limit.succeeded(2.0)
    assert limit.window == 64


def test_pauses_grow_during_an_outage_and_stay_bounded() -> None:
    pauses: list[float] = []
    for _ in range(200):
        limit = ConcurrencyLimit(64)
        for second in range(12):
            limit.throttled(second * 100.0, second * 100.0 + 1, after_seconds=None, unreachable=True)
            pauses.append(limit.paused_until - (second * 100.0 + 1))
    first, last = max(pauses[0::12]), max(pauses[11::12])
    assert first <= 0.05
    assert 0.05 < last <= 2.0


@pytest.mark.parametrize("size", [1, 2, 4])
def test_small_window_is_not_cut(size: int) -> None:
    limit = ConcurrencyLimit(size)
    limit.throttled(0.0, 1.0, after_seconds=0, unreachable=True)
    assert limit.window == size
