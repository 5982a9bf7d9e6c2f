"""Groups whose members mind one another are placed exactly when members could come one by one, on small clusters."""

from collections.abc import Sequence

from hypothesis import event, given, settings
from hypothesis import strategies as st

from builders.placement.clusters import alone, answers, gang, group, potential_victim
from builders.placement.inter_pod_oracle import Seated, admits_one_by_one, most_placed
from builders.placement.random_clusters import Scenery, sceneries
from muster.gangs.facts import Batch, PodClass, PodFacts
from muster.gangs.solve import SolveGroup
from muster.placement.inter_pod.solver import members_interact
from muster.placement.solve.instance import Answer, NotPlaced, PartiallyPlaced, Placed, parts_of
from muster.placement.state.cluster import Cluster


def build(scenery: Scenery) -> Cluster:
    cluster = Cluster()
    pods = tuple(PodFacts(uid, "d", uid, of, node=on, deleting=gone) for uid, of, on, gone in scenery.bound)
    cluster.apply(Batch(pod_classes=tuple(scenery.classes), nodes=tuple(scenery.nodes), pods=pods))
    return cluster


def there(scenery: Scenery) -> list[Seated]:
    by_id = {each.id: each for each in scenery.classes}
    return [Seated(by_id[of], on, gone) for _, of, on, gone in scenery.bound]


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
@given(sceneries(classes=1), st.integers(1, 5), st.data())
def test_equal_members_are_placed_exactly_when_they_can_come_one_by_one(
    scenery: Scenery, wanted: int, data: st.DataObject
) -> None:
    check(scenery, alone("g", ("c0", wanted), minimum=data.draw(st.integers(1, wanted))))


@settings(max_examples=250, deadline=None)
@given(sceneries(classes=2, most_nodes=3, most_bound=2), st.integers(1, 2), st.integers(1, 2), st.data())
def test_mixed_members_are_placed_exactly_when_they_can_come_one_by_one(
    scenery: Scenery, first: int, second: int, data: st.DataObject
) -> None:
    check(scenery, alone("g", ("c0", first), ("c1", second), minimum=data.draw(st.integers(1, first + second))))


@settings(max_examples=200, deadline=None)
@given(sceneries(classes=2, most_nodes=3, most_bound=2), st.sampled_from(["c0", "c1"]), st.booleans())
def test_gangs_of_a_group_are_placed_together_or_not_at_all(scenery: Scenery, second: str, partial: bool) -> None:
    check(scenery, group(gang("g0", ("c0", 2), minimum=1), gang("g1", (second, 2)), partial=partial))


@settings(max_examples=250, deadline=None)
@given(sceneries(classes=2, most_nodes=3, most_bound=2), st.integers(1, 2), st.sampled_from(["c0", "c1"]))
def test_gangs_with_members_of_one_class_mind_one_another(scenery: Scenery, minimum: int, second: str) -> None:
    check(scenery, group(gang("g0", ("c0", 1), ("c1", 1), minimum=minimum), gang("g1", (second, 2), minimum=1)))


def check(scenery: Scenery, asked: SolveGroup) -> None:
    cluster, present = build(scenery), there(scenery)
    [answer] = answers(cluster, asked)
    by_id = {each.id: each for each in scenery.classes}
    wanted = [(by_id[role.class_id], role.wanted) for each in asked.gangs for role in each.roles]
    owner = [index for index, each in enumerate(asked.gangs) for _ in each.roles]
    minimums = [each.minimum for each in asked.gangs]

    def reached(numbers: Sequence[int]) -> bool:
        sums = [sum(n for n, of in zip(numbers, owner, strict=True) if of == index) for index in range(len(minimums))]
        return all(n >= minimum for n, minimum in zip(sums, minimums, strict=True))

    possible = most_placed(scenery.nodes, present, wanted)
    feasible = any(map(reached, possible))
    event(f"{type(answer).__name__}, {feasible=}")
    assert isinstance(answer, Placed) == feasible
    if isinstance(answer, Placed):
        if members_interact(cluster.state, parts_of(asked)):
            assert sum(counts(asked, answer)) == max(sum(numbers) for numbers in possible if reached(numbers))
        assert all(n >= minimum for n, minimum in zip(counts(asked, answer), minimums, strict=True))
    if isinstance(answer, Placed | PartiallyPlaced):
        assert admits_one_by_one(scenery.nodes, present, members(asked, answer, scenery.classes))
    else:
        assert answer.proved
    if not feasible and asked.partial:
        assert isinstance(answer, PartiallyPlaced) == any(any(numbers) for numbers in possible)


@settings(max_examples=250, deadline=None)
@given(sceneries(classes=2, most_nodes=3, most_cpu=2, most_bound=6), st.integers(1, 3), st.booleans())
def test_members_may_come_once_those_have_gone_who_go_for_them(scenery: Scenery, wanted: int, spare: bool) -> None:
    names = {node.name for node in scenery.nodes}
    here = [each for each in scenery.bound if each[2] in names and not each[3]]
    removing = [potential_victim(uid, (on, of, 1), spare=int(spare)) for uid, of, on, _ in here]
    asked = alone("g", ("c0", wanted))
    [answer] = answers(build(scenery), asked, removing=removing)
    if isinstance(answer, Placed):
        gone = {each.id for each in answer.victims}
        present = [seated for seated, (uid, *_) in zip(there(scenery), scenery.bound, strict=True) if uid not in gone]
        assert admits_one_by_one(scenery.nodes, present, members(asked, answer, scenery.classes))
        event(f"placed, {len(gone)} gone")
        if gone:  # nobody goes for nothing
            before = answers(build(scenery), asked)
            assert isinstance(before[0], NotPlaced)
    else:
        first = scenery.classes[0]
        others = [seated for seated, each in zip(there(scenery), scenery.bound, strict=True) if each not in here]
        possible = (wanted,) in most_placed(scenery.nodes, others, [(first, wanted)])
        assert not (possible and isinstance(answer, NotPlaced) and answer.proved)
        event(f"not placed, {possible=}")
