"""Concurrent solves on several replicas of placement: conflicts in the ledger, no overtaking."""

import random

import pytest
from msgspec.structs import replace

from builders.core.objects import node, pod_class
from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from builders.gangs.labels import with_labels
from muster.coordinator.core.effects import Phase, Solve
from muster.coordinator.core.events import Delta, Solved, SolveFailed
from muster.coordinator.core.report.reasons import reason
from muster.coordinator.core.solve.concurrent import FIRST_PAUSE_SECONDS, MAX_EVALUATIONS, NodeSets, disjoint
from muster.gangs.facts import Batch, HostPort, NodeFacts, PodClass, PodTerm, SpreadConstraint, kind_id
from muster.gangs.solve import Assignment, SolveOutcome, SolveResult


def replicated(nodes: dict[str, int], replicas: int = 2) -> Scenario:
    """A cluster, and so many replicas of placement."""
    scenario = Scenario(nodes)
    scenario.scale(replicas)
    return scenario


def solves(scenario: Scenario) -> list[Solve]:
    """Solve requests under way."""
    return [effect for effect in scenario.under_way if isinstance(effect, Solve)]


def names(solve: Solve) -> list[str]:
    """Of the gangs that it is about."""
    return [group.id.rsplit("/", 1)[-1] for group in solve.groups]


def answers(scenario: Scenario, solve: Solve, on: str) -> None:
    """Placement puts all that is asked for on one node."""
    results = tuple(
        SolveResult(
            group.id,
            SolveOutcome.PLACED,
            tuple(
                Assignment(asked.id, index, on, role.wanted)
                for asked in group.gangs
                for index, role in enumerate(asked.roles)
            ),
        )
        for group in solve.groups
    )
    scenario.under_way.remove(solve)
    scenario.tell(Solved(solve.solve_id, results))


def seats(scenario: Scenario, name: str) -> set[str]:
    """Nodes on which the gang has seats."""
    return {seat.node for seat in scenario.gang(name).unbound_seats}


# -- at the same time


def test_with_one_replica_one_solve_is_under_way() -> None:
    scenario = replicated({"n": 8}, replicas=1)
    scenario.add(gang("a").of(2))
    scenario.add(gang("b").of(2))
    assert [names(solve) for solve in solves(scenario)] == [["a"]]


@pytest.mark.parametrize("replicas", [2, 3])
def test_as_many_solves_are_under_way_as_there_are_replicas(replicas: int) -> None:
    scenario = replicated({"n": 8}, replicas)
    for index in range(5):
        scenario.add(gang(f"g{index}").of(1).created(index))
    assert [names(solve) for solve in solves(scenario)] == [[f"g{index}"] for index in range(replicas)]
    scenario.run()
    assert sum(scenario.bound(f"g{index}") for index in range(5)) == 5


def test_a_gang_group_is_in_one_solve_only() -> None:
    scenario = replicated({"n": 8})
    a, b = (gang(name).of(2).with_group("default/a", "default/b") for name in "ab")
    scenario.change(gangs=[a.gang_facts(), b.gang_facts()], pods=[*a.pods(), *b.pods()])
    assert [names(solve) for solve in solves(scenario)] == [["a"]]
    assert {asked.id for solve in solves(scenario) for group in solve.groups for asked in group.gangs} == {a.id, b.id}


def test_fewer_replicas_than_solves_under_way_begin_no_more() -> None:
    scenario = replicated({"n": 8})
    scenario.add(gang("a").of(1))
    scenario.add(gang("b").of(1))
    scenario.scale(1)
    scenario.add(gang("c").of(1))
    scenario.do(0)
    assert len(solves(scenario)) == 1
    scenario.run()
    assert [scenario.bound(name) for name in "abc"] == [1, 1, 1]


def pools() -> Scenario:
    """Two pools of nodes, of which no pod may use both, and two replicas."""
    scenario = Scenario(start=False)
    scenario.cluster.classes.update((each.id, each) for each in (_of_pool("x"), _of_pool("y")))
    scenario.cluster.nodes.update((each.name, each) for each in (_in_pool("x"), _in_pool("y")))
    scenario.replicas = 2
    scenario.start()
    return scenario


def _of_pool(pool: str) -> PodClass:
    return replace(pod_class(1), id=f"in-{pool}", node_selector=(("pool", pool),))


def _in_pool(pool: str) -> NodeFacts:
    return node(pool, 4, labels={"pool": pool})


def add_to(scenario: Scenario, pool: str, *builders: CoreGang) -> None:
    """Gangs whose pods are for one pool."""
    pods = [replace(pod, class_id=f"in-{pool}") for built in builders for pod in built.pods()]
    scenario.change(gangs=[built.gang_facts() for built in builders], pods=pods)


def test_gangs_that_have_no_node_in_common_go_to_different_replicas() -> None:
    scenario = pools()
    scenario.lagging = True
    for index in range(4):
        add_to(scenario, "xy"[index % 2], gang(f"g{index}").of(1).created(index))
    events, scenario.stream, scenario.lagging = scenario.stream, [], False
    scenario.tell(*events)
    assert [names(solve) for solve in solves(scenario)] == [["g0", "g2"], ["g1", "g3"]]


def test_groups_with_disjoint_node_sets_do_not_wait_for_a_slow_solve() -> None:
    scenario = pools()
    add_to(scenario, "x", gang("slow").of(1))
    add_to(scenario, "y", gang("quick").of(1).created(1))
    _, quick = solves(scenario)
    answers(scenario, quick, "y")
    assert seats(scenario, "quick") == {"y"}


# -- conflicts


def two_under_way(nodes: dict[str, int]) -> tuple[Scenario, Solve, Solve]:
    """Of gangs of four, that of `first` before that of `second` in the queue."""
    scenario = replicated(nodes)
    scenario.add(gang("first").of(4))
    scenario.add(gang("second").of(4).created(1))
    one, two = solves(scenario)
    return scenario, one, two


def test_i3_a_conflict_of_two_solves_is_retried_at_once() -> None:
    scenario, one, two = two_under_way({"n": 4, "m": 4})
    answers(scenario, one, "n")
    answers(scenario, two, "n")
    assert seats(scenario, "first") == {"n"}
    assert seats(scenario, "second") == set()
    (again,) = solves(scenario)
    assert names(again) == ["second"]
    assert {held.node for held in again.reservations} == {"n"}
    assert "could not be used" not in reason(scenario.gang("second"))
    answers(scenario, again, "m")
    scenario.run()
    assert (scenario.bound("first"), scenario.bound("second")) == (4, 4)


def test_i8_an_answer_waits_for_a_group_ahead_that_may_need_its_nodes() -> None:
    scenario, one, two = two_under_way({"n": 4, "m": 4})
    answers(scenario, two, "n")
    assert seats(scenario, "second") == set()
    assert scenario.gang("second").phase is Phase.SOLVING
    answers(scenario, one, "n")
    assert seats(scenario, "first") == {"n"}
    scenario.run()
    assert (scenario.bound("first"), scenario.bound("second")) == (4, 4)


def test_an_answer_does_not_wait_if_its_nodes_are_too_small_for_groups_ahead() -> None:
    scenario = replicated({"small": 2, "large": 8})
    scenario.add(gang("big").of(1, cpu=8))
    scenario.add(gang("little").of(2).created(1))
    _, little = solves(scenario)
    answers(scenario, little, "small")
    assert seats(scenario, "little") == {"small"}


def test_no_solve_starts_while_an_answer_waits() -> None:
    scenario, _, two = two_under_way({"n": 4, "m": 4})
    answers(scenario, two, "n")
    scenario.add(gang("third").of(1).created(2))
    assert len(solves(scenario)) == 1
    assert not (wake := scenario.leader.next_wake()) or wake > scenario.now
    scenario.run()
    assert scenario.bound("third") == 0
    scenario.change(nodes=[node("more", 4)])
    scenario.run()
    assert scenario.bound("third") == 1


def test_i8_a_group_that_lost_a_conflict_precedes_in_flight_groups_behind_it() -> None:
    scenario = replicated({"n": 4, "m": 4}, replicas=3)
    for index, name in enumerate(("first", "second", "third")):
        scenario.add(gang(name).of(4).created(index))
    one, two, three = solves(scenario)
    answers(scenario, one, "n")
    answers(scenario, two, "n")
    answers(scenario, three, "m")
    assert seats(scenario, "third") == set(), "it stands behind the second, which had its room taken"
    scenario.run()
    assert [scenario.bound(name) for name in ("first", "second", "third")] == [4, 4, 0]


def test_a_solve_that_fails_lets_the_answers_go_that_waited_for_it() -> None:
    scenario, one, two = two_under_way({"n": 4, "m": 4})
    answers(scenario, two, "n")
    scenario.under_way.remove(one)
    scenario.tell(SolveFailed(one.solve_id, "placement is away"))
    assert seats(scenario, "second") == {"n"}
    scenario.pass_time(5)
    assert (scenario.bound("first"), scenario.bound("second")) == (4, 4)


def test_a_lie_is_no_conflict_and_is_tried_again_later() -> None:
    scenario, one, two = two_under_way({"n": 4, "m": 2})
    answers(scenario, one, "n")
    answers(scenario, two, "m")
    assert not solves(scenario)
    assert "could not be used" in reason(scenario.gang("second"))


def test_i7_capacity_freed_during_concurrent_solves_wakes_all_groups() -> None:
    scenario = replicated({"n": 2})
    scenario.add(gang("a").of(4))
    scenario.add(gang("b").of(3, cpu=2).created(1))
    one, two = solves(scenario)
    old = Scenario({"n": 2})
    scenario.change(nodes=[node("m", 8), node("o", 8)])
    for solve in (one, two):
        scenario.under_way.remove(solve)
        scenario.tell(Solved(solve.solve_id, old.first_fit(solve)))
    scenario.pass_time(2)
    assert (scenario.bound("a"), scenario.bound("b")) == (4, 3)


def test_conflicting_groups_are_solved_one_after_another_for_a_while() -> None:
    scenario, one, two = two_under_way({"n": 4, "m": 16})
    answers(scenario, one, "n")
    answers(scenario, two, "n")
    scenario.add(gang("third").of(4).created(2))
    assert [names(solve) for solve in solves(scenario)] == [["second"]]
    scenario.now += FIRST_PAUSE_SECONDS + 1
    scenario.add(gang("fourth").of(4).created(3))
    assert [names(solve) for solve in solves(scenario)] == [["second"], ["third", "fourth"]]
    scenario.run()
    assert [scenario.bound(name) for name in ("second", "third", "fourth")] == [4, 4, 4]


@pytest.mark.parametrize("seed", range(20))
def test_i8_an_endless_stream_of_smaller_gangs_does_not_overtake(seed: int) -> None:
    """Answers come in any order. The large gang fits; it is asked for at most a few times before it has its place."""
    dice = random.Random(seed)
    scenario = replicated({f"n{index}": 4 for index in range(4)}, replicas=dice.choice((2, 3)))
    for index in range(6):
        scenario.add(gang(f"before{index}").of(1).created(index))
    scenario.add(gang("large").of(8).created(6))
    for index in range(60):
        scenario.add(gang(f"small{index}").of(1).created(7 + index))
        if scenario.under_way:
            scenario.do(dice.randrange(len(scenario.under_way)))
        if scenario.gang("large").permitted:
            break
    scenario.run()
    assert scenario.bound("large") == 8
    assert scenario.gang("large").attempts.in_term <= 7


# -- questions that are refused


def test_one_bad_question_does_not_keep_the_others_from_an_answer() -> None:
    scenario = Scenario({"n": 8})
    scenario.lagging = True
    scenario.add(*(gang(name).of(2).created(index) for index, name in enumerate("abc")))
    events, scenario.stream, scenario.lagging = scenario.stream, [], False
    scenario.tell(*events)
    refused = 0
    for _ in range(20):
        if not scenario.under_way:
            break
        effect = scenario.under_way[0]
        if isinstance(effect, Solve) and "b" in names(effect):
            refused += 1
            scenario.under_way.pop(0)
            scenario.tell(SolveFailed(effect.solve_id, "b cannot be asked", refused=True))
        else:
            scenario.do(0)
    assert [scenario.bound(name) for name in "abc"] == [2, 0, 2]
    assert refused == 2
    assert "placement refused the question" in reason(scenario.gang("b"))


# -- beside others that are under way


def under_way_beside(scenario: Scenario) -> list[list[str]]:
    return [names(solve) for solve in solves(scenario)]


def test_i7_a_group_whose_backoff_expired_is_solved_concurrently() -> None:
    scenario = pools()
    add_to(scenario, "x", gang("slow").of(1))
    add_to(scenario, "y", gang("quick").of(1).created(1))
    _, quick = solves(scenario)
    answers(scenario, quick, "nowhere")
    assert under_way_beside(scenario) == [["slow"]]
    scenario.now += 0.2
    assert (wake := scenario.leader.next_wake()) is not None
    assert wake <= scenario.now
    scenario.wake()
    assert under_way_beside(scenario) == [["slow"], ["quick"]]


def test_i7_an_unschedulable_group_is_solved_concurrently_when_capacity_is_freed() -> None:
    scenario = pools()
    add_to(scenario, "y", gang("large").of(6))
    scenario.run()
    add_to(scenario, "x", gang("slow").of(1).created(1))
    assert under_way_beside(scenario) == [["slow"]]
    scenario.change(nodes=[node("y2", 4, labels={"pool": "y"})])
    scenario.now += 2
    scenario.wake()
    assert under_way_beside(scenario) == [["slow"], ["large"]]


def test_classes_are_apart_as_long_as_no_node_takes_both() -> None:
    scenario = pools()
    assert apart(scenario, ["in-x"], ["in-y"])
    assert not apart(scenario, ["in-x"], ["cpu1"])
    assert not apart(scenario, ["in-x"], ["in-x"])
    assert apart(scenario, ["cpu5"], ["cpu5", "in-x"]), "no node is large enough"
    scenario.change(nodes=[node("large", 8, labels={"pool": "x"})])
    assert not apart(scenario, ["cpu5"], ["in-x"])
    assert apart(scenario, ["cpu5"], ["in-y"])
    scenario.change(remove_nodes=["large"])
    assert apart(scenario, ["cpu5"], ["in-x"])


def test_classes_that_were_not_compared_for_lack_of_time_may_want_any_node() -> None:
    scenario = pools()
    others = tuple(replace(_of_pool("y"), id=f"in-y{number}") for number in range(MAX_EVALUATIONS + 1))
    scenario.tell(Delta(Batch(pod_classes=others)))
    assert not apart(scenario, ["in-x"], [each.id for each in others])
    assert apart(scenario, ["in-x"], [each.id for each in others]), "they are known by now"


def apart(scenario: Scenario, classes: list[str], others: list[str]) -> bool:
    """Whether groups of these classes may be solved at the same time."""
    node_sets = NodeSets(scenario.leader.cache.ledger)
    node_sets.begin()
    return disjoint(node_sets.wishes(classes), node_sets.wishes(others))


SELECTOR = "pods of the same application"
MINDING = {
    "anti-affinity": {"required_pod_anti_affinity": (PodTerm(SELECTOR, "zone"),), "label_set": SELECTOR},
    "affinity": {"required_pod_affinity": (PodTerm(SELECTOR, "zone"),), "label_set": SELECTOR},
    "spread": {"spread": (SpreadConstraint(1, "zone", SELECTOR),), "label_set": SELECTOR},
    "host ports": {"host_ports": (HostPort("TCP", "0.0.0.0", 8080),)},
}


@pytest.mark.parametrize("what", MINDING)
def test_i3_conflicts_the_ledger_cannot_find_are_never_solved_concurrently(what: str) -> None:
    scenario = Scenario({"n": 8}, start=False)
    minding = replace(pod_class(1), id="minding", **MINDING[what])  # type: ignore[arg-type]
    scenario.cluster.classes[minding.id] = minding
    scenario.replicas = 2
    scenario.start()
    for name in ("a", "b"):
        built = gang(name).of(1)
        pods = [replace(pod, class_id="minding", label_set=minding.label_set) for pod in built.pods()]
        scenario.change(gangs=[built.gang_facts()], pods=pods)
    assert under_way_beside(scenario) == [["a"]]
    scenario.add(gang("careless").of(1).created(5))
    assert under_way_beside(scenario) == [["a"], ["careless"]]


@pytest.mark.parametrize("what", ["anti-affinity", "affinity", "spread"])
def test_pods_that_mind_each_other_are_not_apart_in_pools_of_their_own(what: str) -> None:
    scenario = pools()
    reported = tuple(replace(_of_pool(pool), id=f"minding-{pool}", **MINDING[what]) for pool in "xy")  # type: ignore[arg-type]
    scenario.tell(Delta(with_labels(Batch(pod_classes=reported), {})))
    minding_x, minding_y = (kind_id(each.id, each.label_set) for each in reported)
    assert apart(scenario, ["in-x"], [minding_y])
    assert not apart(scenario, [minding_x], [minding_y])
