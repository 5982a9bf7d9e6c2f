"""Invalid solve responses are rejected and reported, and the gang starts after a valid one. A relay between the real
coordinator and placement changes the responses.
"""

import pytest

from builders.e2e.solve_relay import Fault, removes
from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang, plain
from builders.placement import faults as placement_faults
from builders.placement.faults import change_placed

pytestmark = pytest.mark.asyncio(loop_scope="session")

UNUSABLE = "placement's answer could not be used: "


async def rejected(world: World, workload: Workload) -> set[str]:
    """Counted rejections of responses about the gang, by reason."""
    answer = await world.cluster.explain(world.here(workload).id)
    return {each.reason for each in answer.rejected_placements if each.count}


@pytest.mark.parametrize(
    ("fault", "reason", "counted"),
    [
        (
            placement_faults.all_on("no-such-node"),
            f"{UNUSABLE}node no-such-node does not exist",
            "unknown node or pod class",
        ),
        (
            change_placed(placement_faults.duplicated),
            f"{UNUSABLE}it seats 12 pods of gang",
            "does not match the request",
        ),
        (change_placed(placement_faults.oversized_count), f"{UNUSABLE}it seats", "does not match the request"),
        (
            change_placed(placement_faults.one_member_missing),
            f"{UNUSABLE}it seats 5 of gang",
            "below the minimum",
        ),
        (
            change_placed(placement_faults.no_assignments),
            f"{UNUSABLE}it seats 0 of gang",
            "below the minimum",
        ),
        (
            change_placed(placement_faults.empty_assignments),
            f"{UNUSABLE}it seats 0 pods on node",
            "does not match the request",
        ),
        (
            change_placed(placement_faults.of_another_gang),
            f"{UNUSABLE}it seats role 0 of gang",
            "does not match the request",
        ),
        (
            change_placed(placement_faults.of_another_role),
            f"{UNUSABLE}it seats role 7 of gang",
            "does not match the request",
        ),
        (
            change_placed(placement_faults.of_another_group),
            "placement gave no answer for this gang",
            "missing from the response",
        ),
        (placement_faults.no_results, "placement gave no answer for this gang", "missing from the response"),
        (change_placed(placement_faults.unknown_outcome), "its answer cannot be decoded", "undecodable response"),
        (placement_faults.results_twice, f"{UNUSABLE}results: the group is listed twice", "does not match the request"),
        (placement_faults.no_revision, f"{UNUSABLE}revision: it states none for", "does not match the request"),
    ],
)
async def test_an_invalid_solve_response_is_reported_on_the_gang(
    world: World, fault: Fault, reason: str, counted: str
) -> None:
    await world.nodes(4, 4)
    a = gang("a").of(6)
    with world.cluster.solves.with_fault(fault):
        await world.create(a)
        await world.waits(a, reason)
        await world.unschedulable(a, reason)
        assert world.bound_pods(a) == {}
        assert await rejected(world, a) == {counted}
    await world.bound(a)


async def test_i3_placement_cannot_overcommit_a_node(world: World) -> None:
    small, _ = await world.nodes(4, 8)
    a = gang("a").of(6)
    with world.cluster.solves.with_fault(placement_faults.all_on(small)):
        await world.create(a)
        await world.waits(a, f"{UNUSABLE}node {small} has 4000 cpu free, 6000 would be used")
        assert world.bound_pods(a) == {}
        assert await rejected(world, a) == {"insufficient free capacity"}
    await world.bound(a)


async def test_i3_placement_cannot_assign_the_same_capacity_twice(world: World) -> None:
    small, _ = await world.nodes(6, 4)
    a, b = gang("a").of(4), gang("b").of(4)
    with world.cluster.solves.with_fault(placement_faults.all_on(small)):
        await world.create(a, b)
        first = await world.one_bound(a, b)
        second = b if first is a else a
        await world.waits(second, f"{UNUSABLE}node {small} has 2000 cpu free, 4000 would be used")
    await world.bound(second)


async def test_a_node_that_fails_the_filters_is_rejected(world: World) -> None:
    closed, _ = await world.nodes(8, 8)
    await world.cordon(closed)
    a = gang("a").of(4)
    with world.cluster.solves.with_fault(placement_faults.all_on(closed)):
        await world.create(a)
        await world.waits(a, f"{UNUSABLE}node {closed}: node(s) were unschedulable")
        assert await rejected(world, a) == {"node rejected by a filter"}
    await world.bound(a)


async def test_i1_placement_cannot_start_a_strict_gang_in_part(world: World) -> None:
    await world.nodes(4, 4)
    a = gang("a").of(6)
    with world.cluster.solves.with_fault(change_placed(placement_faults.unrequested_partial)) as requests:
        await world.create(a)
        await world.cluster.until(lambda: requests, "placement was asked")
        await world.waits(a)
        assert world.bound_pods(a) == {}
    await world.nodes(1)  # it is tried again when something changes
    await world.bound(a)


async def test_a_response_that_violates_a_hard_constraint_is_reported(world: World) -> None:
    one, other = await world.nodes(4, 4)
    a = gang("a").of(4).marked({"muster.dev/topology": "node: hard pack"})
    with world.cluster.solves.with_fault(placement_faults.spread_over(one, other)):
        await world.create(a)
        await world.waits(a, f'{UNUSABLE}it divides the members in a way that "node: hard pack" forbids')
        assert world.bound_pods(a) == {}
        assert await rejected(world, a) == {"hard constraint violated"}
    await world.bound(a)
    assert len(world.per_node(a)) == 1


async def test_a_missing_response_costs_one_backoff(world: World) -> None:
    await world.nodes(4)
    a, single = gang("a").of(3), plain("single")
    with world.cluster.solves.with_fault(placement_faults.no_answer):
        await world.create(a)
        await world.waits(a, "placement is not available: it did not answer in time")
        assert world.bound_pods(a) == {}
    await world.create(single)
    await world.bound(a, single)


async def test_i9_pods_that_were_not_offered_are_not_evicted(world: World) -> None:
    await world.nodes(4)
    low, high = gang("low").of(4).with_priority(0), gang("high").of(2).with_priority(10)
    await world.create(low)
    await world.bound(low)
    before = world.uids(low)
    with world.cluster.solves.with_fault(placement_faults.unknown_victim("koordinator/nowhere/nobody")) as requests:
        await world.create(high)
        await world.cluster.until(lambda: any(map(removes, requests)), "somebody was to go")
        await world.waits(high)
        assert world.uids(low) == before
    await world.bound(high)


async def test_i9_nothing_is_evicted_for_a_gang_that_fits(world: World) -> None:
    node, _ = await world.nodes(4, 4)
    low, high = gang("low").of(4).with_priority(0), gang("high").of(4).with_priority(10)
    await world.create(low)
    await world.bound(low)
    before = world.uids(low)
    with world.cluster.solves.with_fault(placement_faults.needless_victim(world.here(low).id, node)):
        await world.create(high)
        named = f'{UNUSABLE}victims: gang "{world.here(low).id}" is not among the potential victims of the request'
        await world.waits(high, named)
    await world.bound(high)
    assert world.uids(low) == before
    assert len(world.bound_pods(low)) == 4
