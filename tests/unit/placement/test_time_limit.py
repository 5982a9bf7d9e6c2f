"""Time limits: what is answered when time passes, and that nothing stays reserved. The clock counts its readings."""

import itertools
from collections.abc import Callable

import pytest

from builders.placement.clusters import alone, node, pod_class
from builders.placement.inter_pod_rules import HOST, affinity, anti_affinity, member, packed, rack, spread, with_racks
from builders.placement.labels import LabelledCluster
from muster.gangs.facts import Batch, PodFacts, PodTerm
from muster.gangs.solve import PodsOnNode, PotentialVictim, SolveGroup, SolveOutcome
from muster.placement.solve.instance import NotPlaced, Placed, result_of
from muster.placement.solve.solve import solve
from muster.placement.state.capacity import NO_NOMINATIONS
from muster.placement.state.cluster import Cluster
from muster.placement.state.time_limit import UNLIMITED, Abandoned, OutOfTime, TimeLimit

KINDS = 30


def cluster() -> Cluster:
    """Nodes of 8 cpu, each with a class of pods that only it takes, and two pods on the first."""
    cluster = Cluster()
    names = [f"n{i}" for i in range(KINDS)]
    classes = tuple(pod_class(name, 2, selector={"host": name}) for name in names)
    pods = tuple(PodFacts(uid, "default", uid, "n0", node="n0") for uid in "pq")
    nodes = tuple(node(name, labels={"host": name}) for name in names)
    cluster.apply(Batch(pod_classes=classes, nodes=nodes, pods=pods))
    cluster.state.refresh()
    return cluster


def own_selectors(name: str = "wide", count: int = 1) -> SolveGroup:
    return alone(name, *((f"n{i}", count) for i in range(KINDS)))


def ticking() -> Callable[[], float]:
    """A clock that advances by a second with every reading."""
    return itertools.count().__next__


def limited(cluster: Cluster, seconds: float, seconds_per_group: float = 1e9) -> TimeLimit:
    limit = TimeLimit(seconds, seconds_per_group, ticking())
    cluster.state.limit = limit
    limit.start()
    return limit


def test_without_time_nothing_is_found_and_nothing_stays_reserved() -> None:
    one = cluster()
    before = one.state.free.copy()
    limited(one, 1e9, seconds_per_group=0)
    [answer] = solve(one.state, [own_selectors()])
    assert isinstance(answer, NotPlaced)
    assert (answer.out_of_time, answer.proved) == (True, False)
    assert answer.explanation.summary == "no placement was found within 0 s"
    result = result_of(own_selectors(), answer)
    assert (result.outcome, result.out_of_time) == (SolveOutcome.NOT_FOUND, True)
    assert (one.state.free == before).all()
    assert one.state.checkpoint() == 0


@pytest.mark.parametrize("ticks", [1, 2, KINDS, KINDS + 5, 2 * KINDS, 3 * KINDS])
def test_time_that_passes_anywhere_leaves_the_state_as_before(ticks: int) -> None:
    one = cluster()
    before = one.state.free.copy()
    limited(one, 1e9, seconds_per_group=ticks)
    answers = list(solve(one.state, [own_selectors(count=5)]))
    assert all(isinstance(answer, NotPlaced) for answer in answers)
    assert (one.state.free == before).all()


def test_a_group_that_takes_long_costs_the_others_no_answer() -> None:
    one = cluster()
    limited(one, 1e9, seconds_per_group=12)
    groups = [own_selectors("wide"), alone("small", ("n1", 2)), own_selectors("again"), alone("single", ("n2", 1))]
    answers = list(solve(one.state, groups))
    assert [isinstance(answer, Placed) for answer in answers] == [False, True, False, True]
    assert [isinstance(answer, NotPlaced) and answer.out_of_time for answer in answers] == [True, False, True, False]


def test_the_time_of_a_request_is_shared_by_its_groups() -> None:
    one = cluster()
    limited(one, 40)
    groups = [own_selectors(str(number)) for number in range(3)] + [alone("small", ("n1", 2))]
    answers = list(solve(one.state, groups))
    assert [isinstance(answer, Placed) for answer in answers] == [False, False, False, True]


def test_single_pods_that_take_long_together_are_tried_one_by_one() -> None:
    one = cluster()
    limited(one, 1e9, seconds_per_group=6)
    answers = list(solve(one.state, [alone(f"s{i}", (f"n{i}", 1)) for i in range(KINDS)]))
    assert all(isinstance(answer, Placed) for answer in answers)


def test_preemption_ends_without_victims_when_time_passes() -> None:
    one = cluster()
    before = one.state.free.copy()
    limited(one, 1e9, seconds_per_group=9)
    victims = [PotentialVictim("v", 0, 0, (PodsOnNode("n0", "n0", 2),))]
    [answer] = solve(one.state, [own_selectors(count=4)], NO_NOMINATIONS, victims)
    assert isinstance(answer, NotPlaced)
    assert answer.out_of_time
    assert (one.state.free == before).all()


def test_an_abandoned_solve_ends_at_its_next_check() -> None:
    one = cluster()
    limited(one, 1e9).abandon()
    with pytest.raises(Abandoned):
        list(solve(one.state, [own_selectors()]))


def test_groups_have_equal_shares_of_what_is_left() -> None:
    now = [0.0]
    limit = TimeLimit(10, clock=lambda: now[0])
    limit.start()
    limit.begin_group(4)
    now[0] = 2.4
    limit.check()
    now[0] = 2.5
    with pytest.raises(OutOfTime) as caught:
        limit.check()
    assert caught.value.seconds == 2.5
    limit.begin_group(3)
    now[0] = 4.9
    limit.check()


def labelled() -> Cluster:
    """Two racks of nodes, and classes whose pods keep apart from their own and near one another."""
    built = with_racks(LabelledCluster())
    nodes = [*rack("r0", {"a": 4, "b": 4, "c": 4}), *rack("r1", {"d": 4, "e": 4, "f": 4})]
    rules = {**anti_affinity(HOST, "s0"), **affinity("rack", "job"), **spread(HOST)}
    classes = [member(f"c{i}", 1, labelled=("job", f"s{i}"), **(rules if i % 2 else {})) for i in range(6)]
    built.apply(Batch(pod_classes=tuple(classes), nodes=tuple(nodes)))
    built.state.refresh()
    return built


def interacting(count: int = 1) -> SolveGroup:
    return alone("g", *((f"c{i}", count) for i in range(6)))


def packed_in_racks(count: int = 1) -> SolveGroup:
    return packed(interacting(count))


@pytest.mark.parametrize("asked", [interacting(), interacting(9), packed_in_racks(), packed_in_racks(3)])
def test_after_time_passed_anywhere_the_next_solve_is_as_if_it_had_not_happened(asked: SolveGroup) -> None:
    one = labelled()
    [expected] = solve(one.state, [asked])
    one.state.rollback(0)
    cut_off = 0
    for ticks in range(0, 160, 13):
        limited(one, 1e9, seconds_per_group=ticks)
        [answer] = solve(one.state, [asked])
        one.state.rollback(0)
        cut_off += isinstance(answer, NotPlaced) and answer.out_of_time
        one.state.limit = UNLIMITED
        [again] = solve(one.state, [asked])
        one.state.rollback(0)
        assert again == expected
    assert cut_off > 2


def with_terms(count: int) -> Cluster:
    """2,000 nodes, and pods that differ, each with so many anti-affinity terms that no other has."""
    built = with_racks(LabelledCluster())
    for number in range(40):
        built.apply(Batch(nodes=tuple(rack(f"r{number}", {f"n{number}-{i}": 4 for i in range(50)}))))
    terms = {f"c{i}": tuple(PodTerm(f"s{i}-{each}", HOST) for each in range(100)) for i in range(count)}
    classes = [member(name, 1, labelled=(name,), required_pod_anti_affinity=own) for name, own in terms.items()]
    built.apply(Batch(pod_classes=(*classes, pod_class("plain", 1))))
    built.state.refresh()
    return built


def test_i11_a_gang_with_too_many_selectors_costs_the_others_no_answer() -> None:
    one = with_terms(250)
    before = one.state.free.copy()
    groups = [alone("wide", *((f"c{i}", 1) for i in range(250))), alone("small", ("c0", 1), ("plain", 1))]
    wide, small = solve(one.state, groups)
    assert isinstance(wide, NotPlaced)
    assert (wide.out_of_time, wide.proved) == (True, False)
    assert "selectors of other pods, are more than one gang may have on 2000 nodes" in wide.explanation.summary
    assert isinstance(small, Placed)
    one.state.rollback(0)
    assert (one.state.free == before).all()
    assert one.state.pod_counts.in_use <= 100
