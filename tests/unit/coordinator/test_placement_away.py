"""Placement is gone for a while: nobody is held longer for that than placement is away."""

from builders.core.objects import gang, node
from builders.core.world import Story
from muster.coordinator.core.effects import Solve
from muster.coordinator.core.events import SolveFailed
from muster.coordinator.core.queue.queue import AWAY_SECONDS

OUTAGE_SECONDS = 60.0


def away_for(story: Story, seconds: float) -> int:
    """Nobody answers for so long; returns how often placement was asked."""
    asked, end = 0, story.now + seconds
    while story.now < end:
        for solve in [effect for effect in story.under_way if isinstance(effect, Solve)]:
            asked += 1
            story.under_way.remove(solve)
            story.tell(SolveFailed(solve.solve_id, "UNAVAILABLE: nobody is there", away=True))
        wake = story.machine.next_wake() if story.machine is not None else None
        story.now = end if wake is None else min(end, max(story.now, wake))
        story.wake()
    return asked


def test_i7_when_placement_is_back_those_that_waited_longest_are_tried_at_once() -> None:
    story = Story({"n": 8})
    story.add(gang("a").of(4))
    story.add(gang("b").of(4).created(1))
    asked = away_for(story, OUTAGE_SECONDS)
    assert asked <= OUTAGE_SECONDS / AWAY_SECONDS + 2, "it is not asked without a pause"
    story.pass_time(AWAY_SECONDS)
    assert (story.bound("a"), story.bound("b")) == (4, 4)


def test_gangs_for_which_another_speaks_wait_no_longer_than_that_one() -> None:
    story = Story({"n": 2})
    gangs = [gang(f"g{number}").of(4).created(number) for number in range(3)]
    story.add(*gangs)
    story.run()
    story.deliver()
    story.change(nodes=[node(f"m{number}", 4) for number in range(3)])
    away_for(story, OUTAGE_SECONDS)
    story.pass_time(AWAY_SECONDS)
    assert [story.bound(f"g{number}") for number in range(3)] == [4, 4, 4]
