"""Sakkara's groups: ConfigMaps and labels in, placements, ranks, times and preemption out."""

from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from builders.e2e.faults import Requests
from builders.e2e.sakkara_groups import RANK, RETRIES, STATUS, ObservedGroups, following, topology
from builders.e2e.world import World
from builders.gangs.sakkara_manifests import SakkaraGroup, group

pytestmark = pytest.mark.asyncio(loop_scope="session")

STAGES = ["Waiting", "Ready", "Assigned", "Permitted", "Bound"]


@pytest_asyncio.fixture(loop_scope="session")
async def observed(world: World) -> AsyncIterator[ObservedGroups]:
    """Statuses of ConfigMaps and pods of the world, from the beginning."""
    async with following(world) as observed:
        yield observed


def as_found(world: World, workload: SakkaraGroup, tree: Any) -> Any:
    """The part of the tree with the pods of a group."""
    homes = world.bound_pods(workload)

    def of(part: Any) -> Any:
        if isinstance(part, list):
            pods: Any = {node: {pod: {} for pod, home in homes.items() if home == node} for node in part}
            return {node: there for node, there in pods.items() if there}
        return {name: below for name, each in part.items() if (below := of(each))}

    return {"root": of(tree)}


async def matches_reported_placement(world: World, observed: ObservedGroups, workload: SakkaraGroup, tree: Any) -> None:
    """Check that everything written about a bound group agrees with its pods' nodes."""
    await world.bound(workload)
    data = await observed.wait_for_data(workload, status="Bound")
    assert observed.placement(workload) == as_found(world, workload, tree)
    assert "preemptor" not in data
    ranks = observed.ranks(workload)
    assert sorted(ranks.values()) == list(range(workload.size))
    assert list(ranks.values()) == sorted(ranks.values())
    began, ended = (datetime.fromisoformat(data[key]) for key in ("schedBeginTime", "schedEndTime"))
    assert began.utcoffset() == timedelta()
    assert "." in data["schedBeginTime"]
    assert began <= ended
    assert abs(int(data["schedTotalTimeMilli"]) - (ended - began) / timedelta(milliseconds=1)) <= 1
    assert int(data["schedSolverTimeMilli"]) >= 0
    labels = await observed.wait_for_labels(workload, status="Bound")
    assert {pod: int(each[RANK]) for pod, each in labels.items()} == ranks
    assert all(int(each[RETRIES]) >= 1 for each in labels.values())


async def told_on_config_map(world: World, workload: SakkaraGroup, saying: str) -> None:
    """Wait for a Warning event about its ConfigMap that contains the words."""

    def there() -> bool:
        events = world.cluster.events_of(world.name, [workload.name])
        return any(
            event["regarding"]["kind"] == "ConfigMap" and event["type"] == "Warning" and saying in event["note"]
            for event in events
        )

    await world.cluster.until(there, f"a Warning about the ConfigMap of {workload.name} that says {saying}")


def in_order(statuses: list[str]) -> bool:
    """Check the order of stages: one may be skipped in observation, but none comes back."""
    return statuses == sorted(set(statuses), key=STAGES.index)


async def test_two_equal_partitions_are_each_packed_into_one_rack(world: World, observed: ObservedGroups) -> None:
    a, b, c, d, e, f = await world.nodes(3, 3, 3, 3, 3, 1)
    racks = {"r0": [a, b], "r1": [c, d], "r2": [e, f]}
    async with topology(world, ["rack", "node"], racks) as tree:
        rack, node = {"type": "spread", "partitions": 2, "hard": True}, {"type": "pack"}
        eight = group("user-a").of(8).on_tree(tree).asking_levels(rack=rack, node=node)
        await world.add_pods(eight)
        await world.waits(eight, "there is no ConfigMap", "sakkara.group")
        await world.define(eight)
        await matches_reported_placement(world, observed, eight, racks)
        root = observed.placement(eight)["root"]
        assert [sum(map(len, nodes.values())) for nodes in root.values()] == [4, 4]
        assert sum(map(len, root.values())) == 4, "3 and 1 on two nodes of a rack: 2 and 2 are no better packed"
        assert observed.statuses["user-a"][-1] == "Bound"


async def test_one_server_with_two_to_four_pods_per_node(world: World, observed: ObservedGroups) -> None:
    a, b, c, d = await world.nodes(6, 6, 3, 3)
    servers = {"s0": {"b0": [a, b]}, "s1": {"b1": [c], "b2": [d]}}
    async with topology(world, ["server", "board", "node"], servers) as tree:
        server, node = {"type": "pack"}, {"type": "spread", "min": 2, "max": 4, "hard": "true"}
        six = group("user-b").of(6).on_tree(tree).asking_levels(server=server, node=node).declared_by_labels()
        await world.create(six)
        await world.bound(six)
        nodes = world.per_node(six)
        assert set(nodes) in ({a, b}, {c, d})
        assert all(2 <= count <= 4 for count in nodes.values())
        await observed.wait_for_labels(six, status="Bound")
        explained = await world.cluster.muster("explain", world.here(six).id)
        assert "sakkara" in explained
        assert "sakkara.group.constraint.min.node: 2" in explained


async def test_status_follows_and_ranks_precede_the_bind(world: World, observed: ObservedGroups) -> None:
    four = group("four").of(4)
    await world.define(four)
    await observed.wait_for_data(four, status="Waiting")
    await world.add_pods(four)
    ready = await observed.wait_for_data(four, status="Ready")
    assert "placement" not in ready
    assert "schedEndTime" not in ready
    nodes = await world.nodes(2, 2)
    await world.bound(four)
    await observed.wait_for_data(four, status="Bound")
    assert in_order(observed.statuses["four"])
    ranks = observed.ranks(four)
    assert {pod: labels.get(RANK) for pod, labels in observed.first_labels.items()} == {
        pod: str(ranks[pod]) for pod in ranks
    }
    assert {labels[STATUS] for labels in observed.first_labels.values()} == {"Permitted"}
    assert Counter(world.bound_pods(four).values()) == dict.fromkeys(nodes, 2)


async def test_a_pod_whose_label_cannot_be_written_is_not_bound(world: World, observed: ObservedGroups) -> None:
    await world.nodes(4)
    two = group("two").of(2)
    with world.cluster.faults.hold(Requests("PATCH", "/pods/two-0")) as held:
        await world.create(two)
        await held.until(1)
        await world.bound(two, count=1)
        assert world.bound_pods(two).keys() == {"two-1"}
        assert "Bound" not in observed.statuses["two"]
        held.release()
        await observed.wait_for_data(two, status="Bound")
    assert {pod: labels[RANK] for pod, labels in observed.first_labels.items()} == {"two-0": "0", "two-1": "1"}


async def test_an_unwritable_config_map_does_not_block_its_group(world: World, observed: ObservedGroups) -> None:
    await world.nodes(4)
    two = group("two").of(2)
    with world.cluster.faults.refuse(Requests("PATCH", "/configmaps/two"), 403):
        await world.create(two)
        await world.bound(two)
        await told_on_config_map(world, two, "could not be written")
        assert "status" not in observed.data(two)
    await observed.wait_for_data(two, status="Bound")


def ranked(name: str, priority: int) -> SakkaraGroup:
    """A group with a priority in the queue, and the right to preempt that its pods have by the same priority."""
    return group(name).saying(priority=str(priority)).with_priority(priority)


async def test_a_preempted_group_names_the_preemptor_and_restarts(world: World, observed: ObservedGroups) -> None:
    nodes = await world.nodes(2, 2, 2, 2)
    lowest, low = ranked("lowest", -5).of(4), ranked("low", 2).of(4)
    for each in (low, lowest):
        await world.create(each)
        await observed.wait_for_data(each, status="Bound")
    spared = world.uids(low)
    harmless = ranked("harmless", 0).of(2)
    await world.create(harmless)
    await world.waits(harmless, "0 of 2 members fit")
    assert len(world.uids(lowest)) == 4, "only priorities above 0 preempt"
    rush = ranked("rush", 5).of(3)
    await world.create(rush)
    await world.bound(rush)
    evicted = await observed.wait_for_data(lowest, status="Preempted", preemptor="rush")
    assert "placement" not in evicted
    assert world.uids(lowest) == set()
    assert world.uids(low) == spared
    await observed.wait_for_data(low, status="Bound")
    await world.add_pods(lowest)
    await observed.wait_for_data(lowest, status="Ready", preemptor="rush")
    await world.delete(harmless)
    more = await world.nodes(2, 2)
    await matches_reported_placement(world, observed, lowest, [*nodes, *more])
    assert observed.statuses["lowest"].index("Preempted") < len(observed.statuses["lowest"]) - 1


async def test_groups_of_higher_priority_are_not_chosen_as_victims(world: World, observed: ObservedGroups) -> None:
    await world.nodes(8)
    running = [ranked(f"of-{priority}", priority).of(size) for priority, size in ((1, 2), (2, 4), (3, 2))]
    for each in running:
        await world.create(each)
        await observed.wait_for_data(each, status="Bound")
    low, middle, high = running
    rush = ranked("rush", 9).of(4)
    await world.create(rush)
    await world.bound(rush)
    await observed.wait_for_data(middle, status="Preempted", preemptor="rush")
    assert (len(world.uids(high)), len(world.uids(low)), len(world.uids(middle))) == (2, 2, 0)


@pytest.mark.parametrize(
    ("constraints", "saying"),
    [
        ('{"rack": {"type": "bunch"}}', 'type of level "rack" is "bunch", which is neither pack nor spread'),
        ('{"node": {"min": 3, "max": 4, "factor": 5}}', "no multiple of 5 is from 3 to 4"),
    ],
)
async def test_invalid_constraints_are_reported_on_the_config_map(
    world: World, observed: ObservedGroups, constraints: str, saying: str
) -> None:
    await world.nodes(4)
    wrong = group("wrong").of(2).saying(constraints=constraints)
    await world.create(wrong)
    await world.waits(wrong, saying)
    await told_on_config_map(world, wrong, saying)
    path = f"/api/v1/namespaces/{world.name}/configmaps/wrong"
    await world.cluster.merge(path, {"data": {"constraints": '{"node": {"type": "pack"}}'}})
    await world.bound(wrong)
    await observed.wait_for_data(wrong, status="Bound")


async def test_unequal_pods_are_reported_on_the_config_map(world: World, observed: ObservedGroups) -> None:
    await world.nodes(4)
    mixed = group("mixed").of(2).asking_each({"cpu": 1}, {"cpu": 2})
    await world.create(mixed)
    await world.waits(mixed, "mixed-0", "mixed-1", "cpu")
    await told_on_config_map(world, mixed, "mixed-1")
    assert observed.data(mixed).get("status", "Waiting") == "Waiting"


async def test_the_reported_start_survives_a_coordinator_restart(world: World, observed: ObservedGroups) -> None:
    await world.nodes(4)
    first, second = group("first").of(2), group("second").of(2)
    await world.create(first)
    before = await observed.wait_for_data(first, status="Bound")
    await observed.wait_for_labels(first, status="Bound")
    await world.recorded(first)
    await world.cluster.stack.kill("coordinator")
    await world.create(second)
    await world.cluster.stack.start(["coordinator"])
    await observed.wait_for_data(second, status="Bound")
    assert observed.data(first) == before
    assert observed.statuses["first"][-1] == "Bound"
    await observed.wait_for_labels(first, status="Bound", retries="1")


async def test_a_group_whose_pods_are_gone_restarts_whole(world: World, observed: ObservedGroups) -> None:
    nodes = await world.nodes(2, 2)
    again = group("again").of(4)
    await world.create(again)
    before = await observed.wait_for_data(again, status="Bound")
    await world.delete_pods(again)
    await world.add_pods(again, 0, 1)
    await world.waits(again, "2 of 4 members")
    await observed.wait_for_data(again, status="Waiting")
    assert world.bound_pods(again) == {}
    await world.add_pods(again, 2, 3)
    await matches_reported_placement(world, observed, again, nodes)
    assert observed.data(again)["schedBeginTime"] > before["schedEndTime"]
