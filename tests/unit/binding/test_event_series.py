"""Which events are new, which are repetitions, which are too many."""

from msgspec.structs import replace

from muster.binding.event_series import BURST, REFILL_SECONDS, SAME_SECONDS, About, Allowances, Occurrence, Series
from muster.binding.event_series import SeriesBook as Book

POD = About("v1", "Pod", "ml", "trainer-0", "uid-0")
WAITS = Occurrence(POD, "Warning", "FailedScheduling", "Scheduling", "0/20 nodes are free")


def begun(book: Book, event: Occurrence, now: float = 0.0) -> Series:
    series = Series(event, "trainer-0.1", now)
    book.begin(series)
    return series


def test_the_same_event_within_ten_minutes_is_a_repetition() -> None:
    book = Book()
    series = begun(book, WAITS)
    assert book.find(WAITS, SAME_SECONDS) is series
    assert book.find(WAITS, SAME_SECONDS + 1) is None


def test_the_ten_minutes_count_from_the_last_occurrence() -> None:
    book = Book()
    series = begun(book, WAITS)
    series.last_seen = 500.0
    assert book.find(WAITS, 500 + SAME_SECONDS) is series


def test_another_note_reason_or_object_is_another_event() -> None:
    book = Book()
    begun(book, WAITS)
    assert book.find(replace(WAITS, note="0/21 nodes are free"), 1) is None
    assert book.find(replace(WAITS, reason="GangWaits"), 1) is None
    assert book.find(replace(WAITS, about=replace(POD, uid="uid-1")), 1) is None, "a pod re-created under the name"


def test_only_the_most_recent_series_are_remembered() -> None:
    book = Book(most=2)
    events = [replace(WAITS, note=str(number)) for number in range(3)]
    first, second = begun(book, events[0]), begun(book, events[1])
    assert book.find(events[0], 1) is first
    begun(book, events[2])
    assert book.find(events[0], 1) is first
    assert book.find(events[1], 1) is None, "it was used longest ago"
    assert second.count == 1


def test_what_could_not_be_written_is_begun_anew() -> None:
    book = Book()
    series = begun(book, WAITS)
    book.forget(series)
    assert book.find(WAITS, 1) is None


def test_an_object_may_have_a_burst_then_one_per_refill() -> None:
    allowances = Allowances()
    assert sum(allowances.take(POD, 0.0) for _ in range(100)) == BURST
    assert allowances.left_out(POD) == 100 - BURST
    assert not allowances.take(POD, REFILL_SECONDS - 1)
    assert allowances.take(POD, REFILL_SECONDS)
    assert not allowances.take(POD, REFILL_SECONDS + 1)


def test_objects_do_not_share_an_allowance() -> None:
    allowances = Allowances()
    while allowances.take(POD, 0.0):
        pass
    assert allowances.take(replace(POD, uid="uid-1"), 0.0)


def test_what_was_left_out_is_counted_until_it_is_told() -> None:
    allowances = Allowances()
    while allowances.take(POD, 0.0):
        pass
    allowances.forgive(POD)
    assert allowances.left_out(POD) == 0
    allowances.take(POD, 0.0)
    assert allowances.left_out(POD) == 1


def test_allowances_of_many_objects_stay_bounded() -> None:
    allowances = Allowances(most=2)
    objects = [replace(POD, uid=str(number)) for number in range(3)]
    for _ in range(int(BURST)):
        allowances.take(objects[0], 0.0)
    assert not allowances.take(objects[0], 0.0)
    allowances.take(objects[1], 0.0)
    allowances.take(objects[2], 0.0)
    assert allowances.take(objects[0], 0.0), "the one used longest ago was forgotten"
