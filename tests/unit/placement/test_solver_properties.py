"""Properties of every answer, on random clusters and gangs small enough for enumeration."""

from itertools import product
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from builders.placement.clusters import alone, amounts, answers, cluster, gang, group, node, pod_class
from muster.gangs.facts import NodeFacts, PodClass
from muster.gangs.solve import SolveGroup
from muster.placement.solve.instance import Answer, NotPlaced, Placed
from muster.placement.solve.solve import solve

CPU, MEMORY = st.integers(0, 7), st.integers(0, 5)

small_nodes = st.lists(st.tuples(CPU, MEMORY, st.sampled_from(["z0", "z1"])), min_size=1, max_size=4).map(
    lambda sizes: [
        node(f"n{i}", cpu, memory=memory, labels={"zone": zone}) for i, (cpu, memory, zone) in enumerate(sizes)
    ]
)
small_classes = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 4), st.sampled_from([None, None, "z0"])), min_size=1, max_size=3
).map(
    lambda sizes: [
        pod_class(f"c{i}", cpu, memory=memory, selector={"zone": zone} if zone else None)
        for i, (cpu, memory, zone) in enumerate(sizes)
    ]
)


@st.composite
def small_groups(
    draw: st.DrawFn, most_members: int = 5, most_gangs: int = 2
) -> tuple[list[NodeFacts], list[PodClass], SolveGroup]:
    nodes, classes = draw(small_nodes), draw(small_classes)
    gangs, left = [], most_members
    for index in range(draw(st.integers(1, most_gangs))):
        if not left:
            break
        roles = []
        for each in draw(st.lists(st.sampled_from(classes), min_size=1, max_size=3, unique_by=lambda c: c.id)):
            if left:
                roles.append((each.id, draw(st.integers(1, left))))
                left -= roles[-1][1]
        minimum = draw(st.integers(1, sum(count for _, count in roles)))
        gangs.append(gang(f"g{index}", *roles, minimum=minimum))
    return nodes, classes, group(*gangs)


def usable(each: PodClass, on: NodeFacts) -> bool:
    return all(on.labels.get(key) == value for key, value in each.node_selector)


def check_answer(nodes: list[NodeFacts], classes: list[PodClass], asked: list[SolveGroup], got: list[Answer]) -> None:
    """I3 and all-or-nothing: nothing is oversubscribed, and every placed gang has its minimum and at most what it
    wants.
    """
    by_class, by_node = {each.id: each for each in classes}, {each.name: each for each in nodes}
    used: dict[tuple[str, str], int] = {}
    for of_group, answer in zip(asked, got, strict=True):
        if isinstance(answer, NotPlaced):
            continue
        assert isinstance(answer, Placed), "only groups that are partial may be placed in part"
        for of_gang in of_group.gangs:
            counts = [0] * len(of_gang.roles)
            for assignment in answer.assignments:
                if assignment.gang == of_gang.id:
                    counts[assignment.role] += assignment.count
            assert all(count <= role.wanted for count, role in zip(counts, of_gang.roles, strict=True))
            assert sum(counts) >= of_gang.minimum
        roles = {(each.id, index): role.class_id for each in of_group.gangs for index, role in enumerate(each.roles)}
        for assignment in answer.assignments:
            each = by_class[roles[assignment.gang, assignment.role]]
            assert assignment.count >= 1
            assert usable(each, by_node[assignment.node])
            for resource, amount in each.requests:
                used[assignment.node, resource] = used.get((assignment.node, resource), 0) + amount * assignment.count
    for (name, resource), amount in used.items():
        assert amount <= dict(by_node[name].allocatable).get(resource, 0), (name, resource)


def feasible(nodes: list[NodeFacts], classes: list[PodClass], asked: SolveGroup, minimums: list[int]) -> bool:
    """Enumerates every node, or none, for every member."""
    by_class = {each.id: each for each in classes}
    members = [
        (g, by_class[role.class_id])
        for g, of in enumerate(asked.gangs)
        for role in of.roles
        for _ in range(role.wanted)
    ]
    for choice in product([None, *nodes], repeat=len(members)):
        free = {each.name: dict(each.allocatable) for each in nodes}
        counts = [0] * len(minimums)
        ok = True
        for (index, each), on in zip(members, choice, strict=True):
            if on is None:
                continue
            counts[index] += 1
            ok = usable(each, on)
            for resource, amount in each.requests:
                free[on.name][resource] = free[on.name].get(resource, 0) - amount
                ok = ok and (free[on.name][resource] >= 0 or not amount)
            if not ok:
                break
        if ok and all(count >= minimum for count, minimum in zip(counts, minimums, strict=True)):
            return True
    return False


@settings(max_examples=250, deadline=None)
@given(small_groups())
def test_small_groups_are_placed_exactly_if_feasible(
    instance: tuple[list[NodeFacts], list[PodClass], SolveGroup],
) -> None:
    nodes, classes, asked = instance
    [answer] = answers(cluster(nodes, classes), asked)
    check_answer(nodes, classes, [asked], [answer])
    possible = feasible(nodes, classes, asked, [each.minimum for each in asked.gangs])
    assert isinstance(answer, Placed) == possible
    if isinstance(answer, NotPlaced):
        assert answer.proved
    else:
        wanted = [sum(role.wanted for role in each.roles) for each in asked.gangs]
        if sum(assignment.count for assignment in answer.assignments) < sum(wanted):
            assert not feasible(nodes, classes, asked, wanted)


@settings(max_examples=100, deadline=None)
@given(small_nodes, small_classes, st.data())
def test_i3_batches_never_oversubscribe_or_split_groups(
    nodes: list[NodeFacts], classes: list[PodClass], data: st.DataObject
) -> None:
    some_roles = st.lists(
        st.tuples(st.sampled_from([each.id for each in classes]), st.integers(1, 3)), min_size=1, max_size=3
    )
    asked = []
    for index in range(data.draw(st.integers(1, 6))):
        roles = data.draw(some_roles)
        minimum = data.draw(st.integers(1, sum(count for _, count in roles)))
        asked.append(alone(f"g{index}", *roles, minimum=minimum))
    built = cluster(nodes, classes)
    got = answers(built, *asked)
    check_answer(nodes, classes, asked, got)
    assert answers(built, *asked) == got, "what was taken was not given back"


@settings(max_examples=100, deadline=None)
@given(small_nodes, small_classes, st.integers(1, 12), st.randoms(use_true_random=False))
def test_p39_batched_single_pods_equal_one_by_one(
    nodes: list[NodeFacts], classes: list[PodClass], count: int, chance: Random
) -> None:
    asked = [alone(f"g{i}", (classes[0].id, 1)) for i in range(count)]
    together = answers(cluster(nodes, classes), *asked)
    chance.shuffle(nodes)
    assert [_where(answer) for answer in _one_by_one(nodes, classes, asked)] == [_where(each) for each in together]


@settings(max_examples=100, deadline=None)
@given(small_nodes, small_classes, st.lists(st.integers(0, 2), max_size=12))
def test_batched_single_pods_fail_only_if_they_fail_one_by_one(
    nodes: list[NodeFacts], classes: list[PodClass], picks: list[int]
) -> None:
    asked = [alone(f"g{i}", (classes[pick % len(classes)].id, 1)) for i, pick in enumerate(picks)]
    together = answers(cluster(nodes, classes), *asked)
    check_answer(nodes, classes, asked, together)
    if any(isinstance(answer, NotPlaced) for answer in together):
        assert [_where(answer) for answer in _one_by_one(nodes, classes, asked)] == [_where(each) for each in together]


def _where(answer: Answer) -> str | None:
    return answer.assignments[0].node if isinstance(answer, Placed) else None


def _one_by_one(nodes: list[NodeFacts], classes: list[PodClass], asked: list[SolveGroup]) -> list[Answer]:
    built = cluster(nodes, classes)
    built.state.refresh()
    return [next(iter(solve(built.state, [each]))) for each in asked]


@settings(max_examples=100, deadline=None)
@given(small_nodes, small_classes, st.integers(1, 9))
def test_explanations_of_homogeneous_gangs_are_exact(
    nodes: list[NodeFacts], classes: list[PodClass], wanted: int
) -> None:
    each = classes[0]
    [answer] = answers(cluster(nodes, classes), alone("g", (each.id, wanted)))
    if isinstance(answer, Placed):
        return
    explanation = answer.explanation
    fit = sum(_fits(each, on) for on in nodes)
    assert (explanation.fit, explanation.needed) == (fit, wanted)
    assert sum(count for _, count in explanation.filtered_nodes) == len(nodes)
    if explanation.short_by:
        short = dict(explanation.short_by)
        raised = [
            NodeFacts(on.name, allocatable=tuple((k, v + short.get(k, 0)) for k, v in _all(on)), labels=on.labels)
            for on in nodes
            if usable(each, on)
        ]
        assert sum(_fits(each, on) for on in raised) > 0 or not raised


def _all(on: NodeFacts) -> list[tuple[str, int]]:
    offered = dict(on.allocatable)
    return [(name, offered.get(name, 0)) for name, _ in amounts(1, 1, 1, 1)]


def _fits(each: PodClass, on: NodeFacts) -> int:
    if not usable(each, on):
        return 0
    offered = dict(on.allocatable)
    return min(offered.get(name, 0) // amount for name, amount in each.requests if amount)
