"""The first key without a scan, and no more memory than keys need."""

import random

from muster.coordinator.core.priority_queue import SPARE, PriorityQueue


def test_as_a_dictionary_that_is_scanned() -> None:
    dice = random.Random(1)
    queue: PriorityQueue[int, tuple[int, str]] = PriorityQueue()
    scanned: dict[int, tuple[int, str]] = {}
    for _ in range(5000):
        key = dice.randrange(50)
        if dice.random() < 0.4:
            queue.discard(key)
            scanned.pop(key, None)
        else:
            scanned[key] = (dice.randrange(5), str(key))
            queue.put(key, scanned[key])
        first = min(scanned.items(), key=lambda item: item[1], default=None)
        assert queue.first() == first
        assert (len(queue), list(queue), key in queue) == (len(scanned), list(scanned), key in scanned)


def test_of_equal_ranks_the_first_added_is_first() -> None:
    queue: PriorityQueue[str, int] = PriorityQueue()
    for key, rank in (("b", 1), ("a", 1), ("c", 0), ("c", 1)):
        queue.put(key, rank)
    order = []
    while (first := queue.first()) is not None:
        order.append(first[0])
        queue.discard(first[0])
    assert order == ["b", "a", "c"]


def test_void_entries_are_dropped() -> None:
    queue: PriorityQueue[int, int] = PriorityQueue()
    for rank in range(10_000):
        queue.put(rank % 10, rank)
    assert len(queue._heap) <= 2 * 10 + SPARE
    for key in range(9):
        queue.discard(key)
    assert queue.first() == (9, 9_999)
    queue.discard(9)
    assert queue._heap == []
