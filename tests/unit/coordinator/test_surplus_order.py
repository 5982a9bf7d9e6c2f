"""Which pods a gang with more members than its minimum gives up, and in which order."""

import pytest
from msgspec.structs import replace

from builders.core.actions import crowded, end, evicted, full, pods_of, until_planned
from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.effects import Evict, Phase
from muster.gangs.facts import INDEX_0, LEADER, PodFacts

WIDE = gang("a").of(6).needing(2)


def running(built: CoreGang, nodes: dict[str, int] | None = None, **of_pods: list[int] | list[bool]) -> Scenario:
    """A full cluster with the gang, and what its pods say: a list of values for each field."""
    scenario = full(built, nodes=nodes or {"n": 2, "m": 2, "o": 2})
    for number, pod in enumerate(sorted(pods_of(scenario, built.name), key=lambda pod: pod.name)):
        said = {field: values[number] for field, values in of_pods.items()}
        scenario.change(pods=[replace(pod, **said)])
    return scenario


def given_up(scenario: Scenario, *sizes: int) -> list[list[int]]:
    """Numbers of the pods that the gang loses to gangs of these sizes, one gang after another."""
    found = []
    for number, size in enumerate(sizes):
        scenario.add(gang(f"p{number}").of(size).with_priority(10).created(20 + number))
        scenario.run_effects()
        found.append(sorted(_number(pod) for pod in pods_of(scenario, "a") if pod.deleting))
        end(scenario)
        assert scenario.bound(f"p{number}") == size
    return found


def _number(pod: PodFacts) -> int:
    return int(pod.name.rpartition("-")[2])


def test_pods_with_the_lowest_deletion_cost_are_given_up_first() -> None:
    scenario = running(WIDE, deletion_cost=[0, 7, -5, 3, 3, -2147483648])
    assert given_up(scenario, 1, 1, 2) == [[5], [2], [3, 4]]
    assert scenario.gang("a").phase is Phase.SATISFIED


def test_of_equal_costs_the_highest_index_is_given_up_first() -> None:
    scenario = running(WIDE, ordinal=[INDEX_0 + index for index in (3, 0, 5, 1, 4, 2)])
    assert given_up(scenario, 1, 1, 1, 1) == [[2], [4], [0], [5]]


def test_members_without_an_index_go_by_their_rank() -> None:
    scenario = running(WIDE)
    ranks = {_number(pod): scenario.gang("a").permit.ranks[pod.uid] for pod in pods_of(scenario, "a")}
    highest_first = sorted(ranks, key=lambda number: -ranks[number])
    assert given_up(scenario, 1, 1, 2) == [highest_first[:1], highest_first[1:2], sorted(highest_first[2:4])]


def test_of_equal_positions_the_youngest_is_given_up_first() -> None:
    scenario = running(WIDE, ordinal=[INDEX_0] * 6, created_seconds=[1, 9, 4, 3, 8, 2])
    assert given_up(scenario, 1, 1) == [[1], [4]]


def test_the_leader_is_kept_whatever_it_costs() -> None:
    scenario = running(
        gang("a").of(4).needing(1),
        {"n": 4},
        ordinal=[INDEX_0 + 1, LEADER, INDEX_0, INDEX_0 + 2],
        deletion_cost=[0, -100, 5, 0],
    )
    assert given_up(scenario, 3) == [[0, 2, 3]]


def test_a_leader_alone_on_the_needed_node_is_not_given_up_singly() -> None:
    scenario = running(gang("a").of(3).needing(1), {"n": 1, "m": 1, "o": 1}, ordinal=[LEADER, INDEX_0, INDEX_0 + 1])
    (leader,) = [pod for pod in pods_of(scenario, "a") if pod.ordinal == LEADER]
    for name in scenario.cluster.nodes.keys() - {leader.node}:
        scenario.change(nodes=[replace(scenario.cluster.nodes[name], unschedulable=True)])
    scenario.add(gang("p").of(1).with_priority(10))
    scenario.run_effects()
    assert sorted(pod.deleting for pod in pods_of(scenario, "a")) == [True] * 3


def test_pods_that_nobody_would_recreate_are_not_given_up_singly() -> None:
    other = gang("b").of(2).needing(1).created(1)
    scenario = full(WIDE.created(5), other, nodes={"n": 8})
    bare = [replace(pod, uncontrolled=True) for pod in pods_of(scenario, "a")]
    scenario.change(pods=bare)
    scenario.add(gang("p").of(1).with_priority(10))
    scenario.run_effects()
    assert evicted(scenario) == {"b"}


def test_of_a_gang_with_bare_and_controlled_pods_the_controlled_are_given_up() -> None:
    scenario = running(WIDE, uncontrolled=[True, True, True, False, False, True])
    assert given_up(scenario, 2) == [[3, 4]]


def test_a_gang_that_becomes_rigid_before_the_plan_is_durable_is_not_shrunk() -> None:
    scenario = running(WIDE)
    scenario.add(gang("p").of(1).with_priority(10))
    plan = until_planned(scenario)
    scenario.change(gangs=[WIDE.evicted_as_a_whole().gang_facts()])
    scenario.do(scenario.under_way.index(plan))
    assert not any(isinstance(effect, Evict) for effect in scenario.under_way)
    scenario.run_effects()
    assert sorted(pod.deleting for pod in pods_of(scenario, "a")) in ([False] * 6, [True] * 6)


def test_the_surplus_of_the_lowest_priority_goes_first_and_no_pod_more_than_needed() -> None:
    low, middle = gang("low").of(4).needing(2).with_priority(1), gang("middle").of(4).needing(2).with_priority(2)
    scenario = full(middle, low, nodes={"n": 8})
    scenario.add(gang("p").of(1).with_priority(10))
    scenario.run_effects()
    assert evicted(scenario) == {"low"}
    assert sum(pod.deleting for pod in pods_of(scenario, "low")) == 1


@pytest.mark.parametrize("planned", [False, True], ids=["before the plan", "before the plan is durable"])
def test_a_gang_whose_definition_is_broken_or_gone_has_no_surplus(*, planned: bool) -> None:
    scenario = running(WIDE)
    if planned:
        scenario.add(gang("p").of(1).with_priority(10))
        until_planned(scenario)
    unreadable = replace(WIDE.broken("its definition does not exist").gang_facts(), minimum=0, total=0)
    scenario.change(gangs=[unreadable])
    scenario.add(gang("p").of(1).with_priority(10))
    scenario.run_effects()
    assert sum(pod.deleting for pod in pods_of(scenario, "a")) in (0, 6)
    if not planned:
        assert all(pod.deleting for pod in pods_of(scenario, "a"))


def test_a_new_leader_evicts_no_gang_whole_of_which_spare_pods_were_to_go() -> None:
    """Another scheduler bound the gang, whose declaration has an error: it has no permit, but a minimum."""
    scenario = crowded({"n": 4})
    built = gang("a").of(4).broken("its topology is invalid")
    scenario.change(gangs=[replace(built.gang_facts(), minimum=2, total=4)], pods=built.pods())
    for pod in built.pods():
        scenario.bind_elsewhere(pod.uid, "n")
    scenario.add(gang("p").of(1).with_priority(10))
    scenario.do(scenario.under_way.index(until_planned(scenario)))
    scenario.crash()
    scenario.start()
    assert not scenario.gang("a").eviction.whole
    scenario.run_effects()
    assert sum(pod.deleting for pod in pods_of(scenario, "a")) == 1
