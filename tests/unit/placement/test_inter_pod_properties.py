"""Interacting groups on small random clusters are placed exactly if members could be bound one by one."""

from collections.abc import Sequence

from hypothesis import event, given, settings
from hypothesis import strategies as st

from builders.placement.clusters import alone, answers, gang, group, potential_victim
from builders.placement.inter_pod_oracle import Seated, admits_one_by_one, most_placed
from builders.placement.labels import LabelledCluster
from builders.placement.random_clusters import RandomCluster, random_clusters
from muster.gangs.facts import Batch, PodClass, PodFacts
from muster.gangs.solve import SolveGroup
from muster.placement.inter_pod.solver import members_interact
from muster.placement.solve.instance import Answer, NotPlaced, PartiallyPlaced, Placed, parts_of
from muster.placement.state.cluster import Cluster


def build(drawn: RandomCluster) -> Cluster:
    cluster = LabelledCluster()
    pods = tuple(PodFacts(uid, "d", uid, of, node=on, deleting=gone) for uid, of, on, gone in drawn.bound)
    cluster.apply(Batch(pod_classes=tuple(drawn.classes), nodes=tuple(drawn.nodes), pods=pods))
    return cluster


def bound_pods(drawn: RandomCluster) -> list[Seated]:
    by_id = {each.id: each for each in drawn.classes}
    return [Seated(by_id[of], on, gone) for _, of, on, gone in drawn.bound]


def members(asked: SolveGroup, answer: Answer, classes: Sequence[PodClass]) -> list[Seated]:
    assert isinstance(answer, Placed | PartiallyPlaced)
    by_id = {each.id: each for each in classes}
    roles = {each.id: each.roles for each in asked.gangs}
    return [
        Seated(by_id[roles[assignment.gang][assignment.role].class_id], assignment.node)
        for assignment in answer.assignments
        for _ in range(assignment.count)
    ]


def counts(asked: SolveGroup, answer: Answer) -> list[int]:
    if isinstance(answer, NotPlaced):
        return [0] * len(asked.gangs)
    return [
        sum(assignment.count for assignment in answer.assignments if assignment.gang == each.id) for each in asked.gangs
    ]


@settings(max_examples=250, deadline=None)
@given(random_clusters(classes=1), st.integers(1, 5), st.data())
def test_equal_members_are_placed_iff_bindable_one_by_one(
    drawn: RandomCluster, wanted: int, data: st.DataObject
) -> None:
    check(drawn, alone("g", ("c0", wanted), minimum=data.draw(st.integers(1, wanted))))


@settings(max_examples=250, deadline=None)
@given(random_clusters(classes=2, most_nodes=3, most_bound=2), st.integers(1, 2), st.integers(1, 2), st.data())
def test_mixed_members_are_placed_iff_bindable_one_by_one(
    drawn: RandomCluster, first: int, second: int, data: st.DataObject
) -> None:
    check(drawn, alone("g", ("c0", first), ("c1", second), minimum=data.draw(st.integers(1, first + second))))


@settings(max_examples=200, deadline=None)
@given(random_clusters(classes=2, most_nodes=3, most_bound=2), st.sampled_from(["c0", "c1"]), st.booleans())
def test_gangs_of_a_group_are_placed_together_or_not_at_all(drawn: RandomCluster, second: str, partial: bool) -> None:
    check(drawn, group(gang("g0", ("c0", 2), minimum=1), gang("g1", (second, 2)), partial=partial))


@settings(max_examples=250, deadline=None)
@given(random_clusters(classes=2, most_nodes=3, most_bound=2), st.integers(1, 2), st.sampled_from(["c0", "c1"]))
def test_gangs_with_members_of_one_class_interact(drawn: RandomCluster, minimum: int, second: str) -> None:
    check(drawn, group(gang("g0", ("c0", 1), ("c1", 1), minimum=minimum), gang("g1", (second, 2), minimum=1)))


def check(drawn: RandomCluster, asked: SolveGroup) -> None:
    cluster, present = build(drawn), bound_pods(drawn)
    [answer] = answers(cluster, asked)
    by_id = {each.id: each for each in drawn.classes}
    wanted = [(by_id[role.class_id], role.wanted) for each in asked.gangs for role in each.roles]
    owner = [index for index, each in enumerate(asked.gangs) for _ in each.roles]
    minimums = [each.minimum for each in asked.gangs]

    def reached(numbers: Sequence[int]) -> bool:
        sums = [sum(n for n, of in zip(numbers, owner, strict=True) if of == index) for index in range(len(minimums))]
        return all(n >= minimum for n, minimum in zip(sums, minimums, strict=True))

    possible = most_placed(drawn.nodes, present, wanted)
    feasible = any(map(reached, possible))
    event(f"{type(answer).__name__}, {feasible=}")
    assert isinstance(answer, Placed) == feasible
    if isinstance(answer, Placed):
        if members_interact(cluster.state, parts_of(asked)):
            assert sum(counts(asked, answer)) == max(sum(numbers) for numbers in possible if reached(numbers))
        assert all(n >= minimum for n, minimum in zip(counts(asked, answer), minimums, strict=True))
    if isinstance(answer, Placed | PartiallyPlaced):
        assert admits_one_by_one(drawn.nodes, present, members(asked, answer, drawn.classes))
    else:
        assert answer.proved
    if not feasible and asked.partial:
        assert isinstance(answer, PartiallyPlaced) == any(any(numbers) for numbers in possible)


@settings(max_examples=250, deadline=None)
@given(random_clusters(classes=2, most_nodes=3, most_cpu=2, most_bound=6), st.integers(1, 3), st.booleans())
def test_members_are_bindable_once_the_victims_are_evicted(drawn: RandomCluster, wanted: int, spare: bool) -> None:
    names = {node.name for node in drawn.nodes}
    here = [each for each in drawn.bound if each[2] in names and not each[3]]
    removing = [potential_victim(uid, (on, of, 1), spare=int(spare)) for uid, of, on, _ in here]
    asked = alone("g", ("c0", wanted))
    [answer] = answers(build(drawn), asked, removing=removing)
    if isinstance(answer, Placed):
        gone = {each.id for each in answer.victims}
        present = [seated for seated, (uid, *_) in zip(bound_pods(drawn), drawn.bound, strict=True) if uid not in gone]
        assert admits_one_by_one(drawn.nodes, present, members(asked, answer, drawn.classes))
        event(f"placed, {len(gone)} gone")
        if gone:  # no unneeded victims
            before = answers(build(drawn), asked)
            assert isinstance(before[0], NotPlaced)
    else:
        first = drawn.classes[0]
        others = [seated for seated, each in zip(bound_pods(drawn), drawn.bound, strict=True) if each not in here]
        possible = (wanted,) in most_placed(drawn.nodes, others, [(first, wanted)])
        assert not (possible and isinstance(answer, NotPlaced) and answer.proved)
        event(f"not placed, {possible=}")
