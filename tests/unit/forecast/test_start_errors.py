"""Ranges of expected starts from the errors of earlier ones."""

from random import Random

import pytest

from muster.forecast.start_errors import LEAST_SAMPLES, MAX_SAMPLES, MAX_WAITING, SHARE, StartErrors

NOW = 1_700_000_000.0


def learn(errors: StartErrors, *, waits: list[float], expected: float) -> None:
    """Gangs that were expected to wait so long, and waited for these times."""
    for number, wait in enumerate(waits):
        errors.expect([(f"g{number}", NOW + expected)], NOW)
        errors.started(f"g{number}", NOW + wait)


def test_nothing_is_known_of_few_starts() -> None:
    errors = StartErrors()
    learn(errors, waits=[100.0] * (LEAST_SAMPLES - 1), expected=100.0)
    assert not errors.are_known
    learn(errors, waits=[100.0], expected=100.0)
    assert errors.are_known


@pytest.mark.parametrize("seed", range(5))
def test_a_range_has_the_share_of_starts_that_is_stated(seed: int) -> None:
    random, errors = Random(seed), StartErrors()

    def wait() -> float:
        return 2000.0 * random.lognormvariate(0, 0.8)

    learn(errors, waits=[wait() for _ in range(MAX_SAMPLES)], expected=2000.0)
    earliest, latest = errors.quantiles(NOW).of(NOW + 2000.0, NOW)
    assert latest is not None
    inside = [earliest <= NOW + wait() <= latest for _ in range(2000)]
    assert sum(inside) / len(inside) == pytest.approx(SHARE, abs=0.08)


def test_horizons_have_ranges_of_their_own() -> None:
    errors = StartErrors()
    learn(errors, waits=[100.0] * 30, expected=100.0)
    learn(errors, waits=[8000.0] * 30, expected=2000.0)
    ranges = errors.quantiles(NOW)
    assert ranges.of(NOW + 100, NOW) == (NOW + 100, NOW + 100)
    earliest, latest = ranges.of(NOW + 2000, NOW)
    assert earliest == NOW + 2000
    assert latest == pytest.approx(NOW + 8000)


def test_a_horizon_without_starts_uses_those_of_all() -> None:
    errors = StartErrors()
    learn(errors, waits=[200.0] * 30, expected=100.0)
    _, latest = errors.quantiles(NOW).of(NOW + 100_000, NOW)
    assert latest == pytest.approx(NOW + 100_060 * 260 / 160 - 60)


def test_gangs_that_still_wait_count_as_late_as_they_are() -> None:
    """Otherwise the first starts, which are early, would be taken for all."""
    errors = StartErrors()
    gangs = [f"g{number}" for number in range(40)]
    errors.expect([(gang, NOW + 1000) for gang in gangs], NOW)
    for gang in gangs[:25]:
        errors.started(gang, NOW + 500)
    earliest, latest = errors.quantiles(NOW + 3000).of(NOW + 4000, NOW + 3000)
    assert earliest == NOW + 3500
    assert latest is None, "15 of 40 have waited three times as long, and for how long is not known"


def test_one_gang_counts_once_for_each_horizon() -> None:
    errors = StartErrors()
    for later in range(0, 900, 30):
        errors.expect([("g", NOW + 1000)], NOW + later)
    errors.started("g", NOW + 1000)
    assert errors.known == 3, "a start in 1,000 s, in 900 s or less, and in 300 s or less"


def test_what_is_kept_is_bounded_and_ends_with_the_gangs() -> None:
    errors = StartErrors()
    learn(errors, waits=[100.0] * (MAX_SAMPLES + 10), expected=100.0)
    assert errors.known == MAX_SAMPLES
    errors.expect([(f"g{number}", NOW + 100) for number in range(MAX_WAITING + 1)], NOW)
    errors.started(f"g{MAX_WAITING}", NOW)
    errors.expect([], NOW)
    errors.started("g0", NOW)
    assert errors.known == MAX_SAMPLES
    assert errors.quantiles(NOW).of(NOW + 100, NOW) == (NOW + 100, NOW + 100)
