"""The check that gangs start whole finds those that do not."""

from collections.abc import Iterator

import pytest

from interop.gang import GANG, JSON
from interop.starts import Starts

LIMIT = 10.0


class Story:
    """A gang of three in the namespace "ns", whose pods change at given times."""

    def __init__(self) -> None:
        self.now = 0.0
        self.starts = Starts(whole_within_seconds=LIMIT, clock=lambda: self.now)
        self.starts.expect("ns", "gang", 3)

    def pod(self, uid: str, *, at: float, node: str = "", phase: str = "Pending", change: str = "MODIFIED") -> None:
        self.now = at
        metadata = {"namespace": "ns", "name": uid, "uid": uid, "labels": {GANG: "gang"}}
        pod: JSON = {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": phase}}
        self.starts.on_pod(change, pod)

    def bound(self, *uids: str, at: float) -> None:
        for uid in uids:
            self.pod(uid, at=at, node="n")

    def violations(self, *, at: float) -> list[str]:
        self.now = at
        return self.starts.violations()


@pytest.fixture
def story() -> Iterator[Story]:
    yield Story()


def test_a_gang_that_is_bound_at_once_starts_whole(story: Story) -> None:
    story.bound("a", "b", "c", at=1)

    assert story.violations(at=100) == []


def test_a_gang_that_stays_below_its_minimum_is_found(story: Story) -> None:
    story.bound("a", "b", at=1)

    [violation] = story.violations(at=100)
    assert "ns/gang" in violation and "2 of 3" in violation


def test_a_gang_that_reaches_its_minimum_too_late_is_found(story: Story) -> None:
    story.bound("a", "b", at=1)
    story.bound("c", at=1 + LIMIT + 1)

    assert len(story.violations(at=100)) == 1


def test_a_gang_whose_first_pods_end_before_the_others_start_is_found(story: Story) -> None:
    story.bound("a", at=1)
    story.pod("a", at=50, node="n", phase="Failed")
    story.bound("b", "c", "d", at=51)

    assert len(story.violations(at=100)) == 1


def test_a_gang_that_lost_a_member_has_started_whole(story: Story) -> None:
    story.bound("a", "b", "c", at=1)
    story.pod("a", at=2, node="n", change="DELETED")

    assert story.violations(at=100) == []


def test_a_second_start_is_checked_too(story: Story) -> None:
    story.bound("a", "b", "c", at=1)
    for uid in "abc":
        story.pod(uid, at=2, node="n", change="DELETED")
    story.bound("d", "e", at=3)

    assert len(story.violations(at=100)) == 1


def test_pods_of_others_are_ignored(story: Story) -> None:
    story.starts.on_pod("ADDED", {"metadata": {"namespace": "ns", "uid": "x"}, "spec": {"nodeName": "n"}})

    assert story.violations(at=100) == []
