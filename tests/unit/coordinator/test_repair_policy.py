"""Started gangs that cannot be completed: they wait, or are evicted and start anew; never in silence."""

from msgspec.structs import replace

from builders.core.actions import until
from builders.core.objects import GangBuilder, gang, node, plain_pod
from builders.core.world import Story
from muster.coordinator.core.effects import Bind, Phase
from muster.coordinator.core.events import RecordState
from muster.gangs.facts import RepairPolicy


def half_started(built: GangBuilder) -> Story:
    """Of 8 pods 4 are bound when the coordinator dies; another scheduler takes two of the seats that were left."""
    story = Story({"n": 4, "m": 4})
    story.add(built)
    seats = until(story, Bind).seats
    for seat in seats[:4]:
        story.bind(seat)
    story.crash()
    (left,) = {seat.node for seat in seats[4:]}
    story.intrude(plain_pod("x1"), left)
    story.intrude(plain_pod("x2"), left)
    story.start()
    story.run_effects()
    return story


def test_g22_evict_takes_the_whole_gang_back_to_the_queue() -> None:
    built = gang("a").of(8).repair(RepairPolicy.EVICT)
    story = half_started(built)
    assert story.bound("a") == 6
    assert story.gang("a").phase is Phase.REPAIRING
    story.pass_time(301)
    assert story.bound("a") == 0
    assert any("it starts again" in note for note in story.notes())
    assert built.id not in story.etcd
    missing = [pod for pod in built.pods() if pod.uid not in story.cluster.pods]
    story.add_pods(*[replace(pod, uid=f"{pod.uid}/new") for pod in missing])
    story.run_effects()
    assert story.bound("a") == 0, "a whole gang again: six seats are not enough"
    story.change(nodes=[node("k", 2)])
    story.run_effects()
    assert story.bound("a") == 8


def test_g22_wait_keeps_what_runs_and_says_so() -> None:
    story = half_started(gang("a").of(8))
    story.pass_time(301)
    assert story.bound("a") == 6
    assert any("it keeps running" in note for note in story.notes())
    assert any("must be placed again" in note for note in story.notes())
    story.change(nodes=[node("k", 2)])
    story.run_effects()
    assert story.bound("a") == 8


def test_g22_a_gang_at_its_minimum_is_not_evicted() -> None:
    story = half_started(gang("a").of(8).minimum(6).repair(RepairPolicy.EVICT))
    story.pass_time(301)
    assert story.bound("a") == 6


def test_g22_a_crash_in_the_middle_of_the_eviction() -> None:
    story = half_started(gang("a").of(8).repair(RepairPolicy.EVICT))
    story.graceful = True
    story.now += 301
    story.wake()
    story.do(0)
    assert story.etcd["test/default/a"].state is RecordState.UNPERMITTED
    story.crash()
    story.start()
    story.run_effects()
    story.finish_deletions()
    story.run_effects()
    assert story.bound("a") == 0
    assert not story.gang("a").permitted


def test_i6_a_gang_whose_pod_can_never_be_bound_is_evicted_by_its_policy() -> None:
    """It is placed again and again: that is no progress."""
    built = gang("a").of(4).repair(RepairPolicy.EVICT)
    story = Story({"n": 8})
    story.bind_failures[built.pods()[0].uid] = 10**9
    story.add(built)
    story.pass_time(1000)
    assert any("it starts again" in note for note in story.notes())
