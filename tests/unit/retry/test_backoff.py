"""Exponential backoff: bounds, jitter, and what the I/O helper waits for."""

import asyncio
from collections.abc import Iterator

import pytest

from muster.retry.backoff import backoff_seconds
from muster.retry.retrying import Backoff, jittered_seconds, retry_forever


class Throttled(Exception):
    retry_after_seconds = 0.02


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (5, 5.0), (6, 5.0), (10**9, 5.0)]
)
def test_the_wait_doubles_up_to_the_longest(failures: int, seconds: float) -> None:
    assert backoff_seconds(0.5, 5.0, failures) == seconds


def test_jitter_scales_the_wait() -> None:
    assert backoff_seconds(0.5, 5.0, 3, jitter=0.25) == 0.5
    assert backoff_seconds(0.5, 5.0, 3, jitter=0.0) == 0.0


def test_jittered_waits_stay_within_their_bounds() -> None:
    waits = [jittered_seconds((1.0, 8.0), 3) for _ in range(1000)]
    assert 0 <= min(waits) < 0.5 and 3.5 < max(waits) <= 4.0
    waits = [jittered_seconds((1.0, 8.0), 3, least_jitter=0.5) for _ in range(1000)]
    assert 2.0 <= min(waits) < 2.25 and 3.75 < max(waits) <= 4.0


def test_reset_makes_the_next_wait_short_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.retry.retrying.random.uniform", lambda _, most: most)
    backoff = Backoff(0.1, 0.3)
    assert [backoff.next_seconds() for _ in range(3)] == [0.1, 0.2, 0.3]
    backoff.reset()
    assert backoff.next_seconds() == 0.1


def test_retry_forever_waits_as_long_as_the_error_asks() -> None:
    noted: list[tuple[int, str, float]] = []
    answers: Iterator[Throttled | int] = iter([Throttled("one"), Throttled("two"), 7])

    async def step() -> int:
        answer = next(answers)
        if isinstance(answer, Throttled):
            raise answer
        return answer

    def note(failures: int, error: Exception, seconds: float) -> None:
        noted.append((failures, str(error), seconds))

    assert asyncio.run(retry_forever(step, on=(Throttled,), bounds=(0.001, 0.01), before_wait=note)) == 7
    assert noted == [(1, "one", 0.02), (2, "two", 0.02)]


def test_retry_forever_passes_other_errors_on() -> None:
    async def step() -> None:
        raise KeyError("unexpected")

    with pytest.raises(KeyError, match="unexpected"):
        asyncio.run(retry_forever(step, on=(Throttled,), bounds=(0.1, 1.0), before_wait=lambda *_: None))
