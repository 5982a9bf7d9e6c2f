"""I11: callers of Watch that do not read cost no more than the gangs that exist and those that they were sent."""

import asyncio

from muster.coordinator.api import Watcher


def changes_of(watcher: Watcher) -> list[str]:
    """The changes that the caller gets when it reads."""
    return asyncio.run(watcher.next_changes())


def test_i11_gangs_that_come_and_go_unread_leave_no_changes() -> None:
    watcher = Watcher()
    for number in range(1000):
        watcher.add(f"x/ns/{number}", exists=True)
        watcher.add(f"x/ns/{number}", exists=False)
    watcher.add("x/ns/there", exists=True)
    assert changes_of(watcher) == ["x/ns/there"]


def test_a_removed_gang_that_the_caller_was_sent_is_a_change() -> None:
    watcher = Watcher()
    watcher.add_sent(["x/ns/a", "x/ns/b"], existing={"x/ns/a", "x/ns/b"})
    watcher.add("x/ns/a", exists=False)
    assert changes_of(watcher) == ["x/ns/a"]


def test_a_gang_that_was_removed_after_it_was_described_is_a_change() -> None:
    watcher = Watcher()
    watcher.add("x/ns/a", exists=False)
    watcher.add_sent(["x/ns/a", "x/ns/b"], existing={"x/ns/b"})
    assert changes_of(watcher) == ["x/ns/a"]
