"""Queues serve namespaces in turn, and drop entries of the namespace that has the most."""

from muster.queues.fair_queue import FairQueue


def flooded(count: int = 20_000) -> FairQueue[int, str]:
    queue: FairQueue[int, str] = FairQueue()
    for number in range(count):
        queue.put("flood", number, f"f{number}")
    return queue


def values(queue: FairQueue[int, str], most: int) -> list[str]:
    return [entry.value for entry in queue.take(most)]


def test_one_write_is_among_the_next_however_many_another_namespace_has() -> None:
    queue = flooded()
    queue.put("elsewhere", 0, "single")
    assert "single" in values(queue, 2)
    assert len(queue) == 19_999


def test_writes_of_a_namespace_are_taken_in_order() -> None:
    queue = flooded(4)
    queue.put("elsewhere", 0, "single")
    assert values(queue, 10) == ["f0", "single", "f1", "f2", "f3"]
    assert not queue
    assert values(queue, 10) == []


def test_a_newer_write_replaces_the_older_one_in_its_place() -> None:
    queue = flooded(3)
    queue.put("flood", 0, "newer")
    assert values(queue, 10) == ["newer", "f1", "f2"]


def test_failed_writes_return_to_the_front_unless_there_are_newer_ones() -> None:
    queue = flooded(4)
    taken = queue.take(2)
    queue.put("flood", 1, "newer")
    queue.put_back(taken)
    assert values(queue, 10) == ["f0", "newer", "f2", "f3"]


def test_the_oldest_of_the_namespace_with_the_most_are_dropped() -> None:
    queue = flooded(100)
    queue.put("elsewhere", 0, "single")
    assert queue.drop_down_to(10) == 91
    assert values(queue, 100) == ["f91", "single", *(f"f{number}" for number in range(92, 100))]
    assert queue.drop_down_to(10) == 0


def test_several_large_namespaces_lose_their_writes_equally() -> None:
    queue = flooded(100)
    for number in range(100):
        queue.put("other", number, f"o{number}")
    queue.drop_down_to(20)
    assert sorted(value[0] for value in values(queue, 20)) == ["f"] * 10 + ["o"] * 10


def test_the_first_accepted_write_is_taken_and_its_namespace_waits() -> None:
    queue = flooded(3)
    queue.put("elsewhere", 7, "single")
    assert queue.take_first(lambda key: key != 0) == 1
    assert queue.take_first(lambda key: key != 0) == 7
    assert not queue.has("elsewhere", 7)
    assert queue.take_first(lambda _: False) is None
    assert len(queue) == 2


def test_a_discarded_entry_is_not_served() -> None:
    queue = flooded(2)
    queue.put("elsewhere", 7, "single")
    queue.discard("elsewhere", 7)
    queue.discard("elsewhere", 7)
    queue.discard("flood", 9)
    assert (len(queue), list(queue)) == (2, [0, 1])
    queue.clear()
    assert (len(queue), queue.take(1)) == (0, [])
