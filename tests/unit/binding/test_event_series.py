"""Series of repeated events, and the rate limit of events per object."""

from msgspec.structs import replace

from muster.binding.event_series import (
    BURST,
    REFILL_SECONDS,
    SERIES_SECONDS,
    EventKey,
    ObjectRateLimiter,
    Regarding,
    Series,
    SeriesCache,
)

POD = Regarding("v1", "Pod", "ml", "trainer-0", "uid-0")
PENDING = EventKey(POD, "Warning", "FailedScheduling", "Scheduling", "0/20 nodes are free")


def add_series(cache: SeriesCache, event: EventKey, now: float = 0.0) -> Series:
    series = Series(event, "trainer-0.1", now)
    cache.add(series)
    return series


def test_same_event_within_ten_minutes_repeats_its_series() -> None:
    cache = SeriesCache()
    series = add_series(cache, PENDING)
    assert cache.find(PENDING, SERIES_SECONDS) is series
    assert cache.find(PENDING, SERIES_SECONDS + 1) is None


def test_ten_minutes_count_from_the_last_occurrence() -> None:
    cache = SeriesCache()
    series = add_series(cache, PENDING)
    series.last_seen = 500.0
    assert cache.find(PENDING, 500 + SERIES_SECONDS) is series


def test_different_note_reason_or_object_is_a_new_event() -> None:
    cache = SeriesCache()
    add_series(cache, PENDING)
    assert cache.find(replace(PENDING, note="0/21 nodes are free"), 1) is None
    assert cache.find(replace(PENDING, reason="GangWaits"), 1) is None
    assert cache.find(replace(PENDING, regarding=replace(POD, uid="uid-1")), 1) is None, "a recreated pod"


def test_cache_keeps_only_the_most_recent_series() -> None:
    cache = SeriesCache(max_series=2)
    events = [replace(PENDING, note=str(number)) for number in range(3)]
    first, second = add_series(cache, events[0]), add_series(cache, events[1])
    assert cache.find(events[0], 1) is first
    add_series(cache, events[2])
    assert cache.find(events[0], 1) is first
    assert cache.find(events[1], 1) is None, "the least recently used is dropped"
    assert second.count == 1


def test_forgotten_series_is_new_again() -> None:
    cache = SeriesCache()
    series = add_series(cache, PENDING)
    cache.forget(series)
    assert cache.find(PENDING, 1) is None


def test_object_gets_a_burst_then_one_event_per_refill() -> None:
    limiter = ObjectRateLimiter()
    assert sum(limiter.take(POD, 0.0) for _ in range(100)) == BURST
    assert limiter.suppressed(POD) == 100 - BURST
    assert not limiter.take(POD, REFILL_SECONDS - 1)
    assert limiter.take(POD, REFILL_SECONDS)
    assert not limiter.take(POD, REFILL_SECONDS + 1)


def test_rate_limit_is_per_object() -> None:
    limiter = ObjectRateLimiter()
    while limiter.take(POD, 0.0):
        pass
    assert limiter.take(replace(POD, uid="uid-1"), 0.0)


def test_suppressed_events_are_counted_until_reset() -> None:
    limiter = ObjectRateLimiter()
    while limiter.take(POD, 0.0):
        pass
    limiter.reset_suppressed(POD)
    assert limiter.suppressed(POD) == 0
    limiter.take(POD, 0.0)
    assert limiter.suppressed(POD) == 1


def test_rate_limiter_forgets_the_least_recent_object() -> None:
    limiter = ObjectRateLimiter(max_objects=2)
    objects = [replace(POD, uid=str(number)) for number in range(3)]
    for _ in range(int(BURST)):
        limiter.take(objects[0], 0.0)
    assert not limiter.take(objects[0], 0.0)
    limiter.take(objects[1], 0.0)
    limiter.take(objects[2], 0.0)
    assert limiter.take(objects[0], 0.0), "the least recently used was forgotten"


def test_ended_series_are_forgotten() -> None:
    cache = SeriesCache()
    add_series(cache, PENDING)
    lasting = add_series(cache, replace(PENDING, note="0/21 nodes are free"), now=100.0)
    cache.expire(SERIES_SECONDS + 1)
    assert len(cache) == 1
    assert cache.find(lasting.event, SERIES_SECONDS + 1) is lasting


def test_buckets_are_forgotten_as_soon_as_they_are_full() -> None:
    limiter = ObjectRateLimiter()
    limiter.take(POD, 0.0)
    for _ in range(2):
        limiter.take(replace(POD, uid="uid-1"), 0.0)
    limiter.expire(REFILL_SECONDS)
    assert len(limiter) == 1
    limiter.expire(2 * REFILL_SECONDS)
    assert len(limiter) == 0
