"""A pod whose volume got bound asks for another class of node by then: it keeps its place, and nothing leaks."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from builders.core.actions import answered, until
from builders.core.objects import gang, pod_class
from builders.core.world import Story
from muster.coordinator.core.effects import Bind, Persist, Phase, Solve
from muster.coordinator.core.events import Delta, Persisted
from muster.coordinator.core.report.reasons import reason
from muster.gangs.facts import Batch, NodeOperator, NodeRequirement, NodeSelectorTerm, PodClass, PodFacts


def on(node: str) -> PodClass:
    """The class of a pod of one cpu with a volume that is on this node."""
    here = NodeSelectorTerm(fields=(NodeRequirement("metadata.name", NodeOperator.IN, (node,)),))
    return replace(pod_class(1), id=f"on-{node}", volumes=((here,),))


def with_claims(*nodes: str, count: int = 2, non_strict: bool = False) -> tuple[Story, list[PodFacts]]:
    """A gang of pods with claims that wait for a node."""
    story = Story(dict.fromkeys(nodes, 2), start=False)
    story.cluster.classes.update((each.id, each) for each in map(on, nodes))
    story.start()
    built = gang("g").of(count).non_strict() if non_strict else gang("g").of(count)
    pods = [replace(pod, claims=("data",)) for pod in built.pods()]
    story.change(gangs=[built.gang_facts()], pods=pods)
    return story, pods


def volumes_bound(story: Story) -> None:
    """Every pod's claim has a volume on the node of its seat, and cluster-state tells of it."""
    there = story.gang("g")
    seats = [*there.unbound_seats, *there.acknowledged.values()]
    assert seats
    story.change(pods=[replace(story.cluster.pods[s.uid], class_id=on(s.node).id, claims=()) for s in seats])


def while_the_permit_is_written(story: Story) -> None:
    until(story, Persist)
    volumes_bound(story)


def while_the_bind_is_under_way(story: Story) -> None:
    until(story, Bind)
    volumes_bound(story)


def while_the_bind_waits_to_be_tried_again(story: Story) -> None:
    bind = until(story, Bind)
    for seat in bind.seats:
        story.bind_failures[seat.uid] = 1
    story.do(story.under_way.index(bind))
    volumes_bound(story)
    story.pass_time(5)


def before_a_crash(story: Story) -> None:
    until(story, Bind)
    volumes_bound(story)
    story.crash()
    story.start()


def between_two_leaders(story: Story) -> None:
    bind = until(story, Bind)
    story.crash()
    for seat in bind.seats:
        pod = replace(story.cluster.pods[seat.uid], class_id=on(seat.node).id, claims=())
        story.cluster.put_pod(pod)
    story.start()


@pytest.mark.parametrize(
    "happens",
    [
        while_the_permit_is_written,
        while_the_bind_is_under_way,
        while_the_bind_waits_to_be_tried_again,
        before_a_crash,
        between_two_leaders,
    ],
)
def test_i4_i5_a_volume_that_gets_bound_moves_nobody(happens: Callable[[Story], None]) -> None:
    story, pods = with_claims("a", "b", count=4)
    until(story, Persist)
    decided = {seat.uid: seat.node for seat in story.gang("g").unbound_seats}
    happens(story)
    story.run()
    assert {pod.uid: story.cluster.pods[pod.uid].node for pod in pods} == decided
    assert len(story.solves) == 1
    assert story.gang("g").phase is Phase.SATISFIED
    assert not story.leader.cache.ledger.reserved
    story.delete(gang("g").of(4))
    story.run()
    assert not story.leader.cache.ledger.capacity.seats
    assert not story.etcd


def test_a_bind_that_is_acknowledged_and_not_seen_yet_is_not_counted_twice() -> None:
    story, pods = with_claims("a", count=2)
    bind = until(story, Bind)
    story.lagging = True
    story.do(story.under_way.index(bind))
    older = tuple(replace(pod, class_id=on("a").id, claims=()) for pod in pods)
    story.tell(Delta(Batch(pods=older)))
    capacity = story.leader.cache.ledger.capacity
    assert capacity.used[capacity.rows["a"]].max() == 2000
    story.deliver()
    story.run()
    assert capacity.used[capacity.rows["a"]].max() == 2000
    assert not story.leader.cache.ledger.reserved


def test_a_gang_that_waits_with_reservations_keeps_them_when_a_volume_gets_bound() -> None:
    story, _ = with_claims("a", count=3, non_strict=True)
    story.run()
    gang_ = story.gang("g")
    assert (gang_.phase, len(gang_.seats)) == (Phase.WAITING, 2)
    held = {seat.uid: seat.node for seat in gang_.unbound_seats}
    volumes_bound(story)
    story.run()
    assert {seat.uid: seat.node for seat in gang_.unbound_seats} == held


def test_a_permit_whose_members_changed_class_is_written_as_it_was_decided() -> None:
    story, _ = with_claims("a", count=2)
    persist = until(story, Persist)
    volumes_bound(story)
    story.under_way.remove(persist)
    story.persist(persist)
    story.tell(Persisted(persist.persist_id))
    assert {seat.class_id for seat in until(story, Bind).seats} == {"on-a"}
    story.run()
    assert story.bound("g") == 2


def test_i5_what_a_pod_does_not_ask_any_more_is_room_for_others_while_it_is_bound() -> None:
    story = Story({"a": 4})
    big = gang("big").of(2, cpu=2)
    story.add(big)
    bind = until(story, Bind)
    story.under_way.remove(bind)
    story.change(pods=[replace(pod, class_id=pod_class(1).id) for pod in big.pods()])
    story.add(gang("small").of(2))
    story.run_effects()
    assert story.bound("small") == 2


def test_an_answer_to_what_was_asked_before_the_classes_changed_is_no_lie_and_asked_again_at_once() -> None:
    story, pods = with_claims("a", count=2)
    question = story.only(Solve)
    story.under_way.clear()
    story.change(pods=[replace(pod, class_id=on("a").id, claims=()) for pod in pods])
    story.tell(answered(story, question))
    assert not story.gang("g").attempts.rejections
    assert not reason(story.gang("g"))
    assert isinstance(story.under_way[0], Solve)
    story.run()
    assert story.bound("g") == 2
