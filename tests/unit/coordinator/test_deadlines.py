"""Deadlines: the next time without a scan, and no more memory than keys need."""

import random

from muster.coordinator.core.deadlines import Deadlines


def test_keys_are_due_in_the_order_in_which_they_were_added() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for key, at in (("late", 3.0), ("b", 2.0), ("a", 1.0), ("later", 3.5)):
        deadlines.put(key, at)
    assert deadlines.next_time() == 1.0
    assert list(deadlines.take_due(2.0)) == ["b", "a"]
    assert deadlines.next_time() == 3.0
    assert list(deadlines.take_due(2.0)) == []


def test_the_last_time_of_a_key_counts() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for at in (1.0, 5.0, 1.0, 3.0):
        deadlines.put("a", at)
    deadlines.put("b", 4.0)
    deadlines.discard("b")
    assert (len(deadlines), deadlines.next_time()) == (1, 3.0)
    assert list(deadlines.take_due(2.0)) == []
    assert list(deadlines.take_due(9.0)) == ["a"]
    assert deadlines.next_time() is None


def test_a_key_is_there_until_it_is_taken() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for key in ("a", "b", "c", "d"):
        deadlines.put(key, 1.0)
    due = deadlines.take_due(1.0)
    assert next(due) == "a"
    deadlines.discard("b")
    deadlines.put("c", 2.0)
    assert "d" in deadlines
    assert list(due) == ["d"]
    assert (len(deadlines), deadlines.next_time()) == (1, 2.0)


def test_as_a_dictionary_that_is_scanned() -> None:
    dice = random.Random(1)
    deadlines: Deadlines[int] = Deadlines()
    scanned: dict[int, float] = {}
    for now in range(2000):
        key = dice.randrange(50)
        if dice.random() < 0.2:
            deadlines.discard(key)
            scanned.pop(key, None)
        else:
            scanned[key] = now + dice.random() * 20
            deadlines.put(key, scanned[key])
        assert deadlines.next_time() == min(scanned.values(), default=None)
        due = [key for key, at in scanned.items() if at <= now]
        for key in due:
            del scanned[key]
        assert list(deadlines.take_due(now)) == due


def test_void_entries_are_dropped() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for at in range(10_000):
        deadlines.put(at % 10, 1.0 + at)
    for key in range(9):
        deadlines.discard(key)
    assert len(deadlines._heap) <= 100
    assert deadlines.next_time() == 10_000
