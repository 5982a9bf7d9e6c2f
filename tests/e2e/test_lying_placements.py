"""A placement that lies harms nobody: the answer is not taken, it is told, the gang waits, and starts once it is told
the truth. Between a real coordinator and a real placement stands a relay that changes the answers.
"""

import pytest

from builders.e2e.solve_relay import Lie, removes
from builders.e2e.world import Scene
from builders.gangs.workloads import Workload, gang, plain
from builders.placement import faults as lies
from builders.placement.faults import of_places

pytestmark = pytest.mark.asyncio(loop_scope="session")

UNUSABLE = "placement's answer could not be used: "


async def rejected(scene: Scene, workload: Workload) -> set[str]:
    """Why answers about the gang were not taken, as far as they are counted."""
    answer = await scene.cluster.explain(scene.here(workload).id)
    return {each.reason for each in answer.rejected_answers if each.count}


@pytest.mark.parametrize(
    ("lie", "reason", "counted"),
    [
        (lies.all_on("no-such-node"), f"{UNUSABLE}node no-such-node does not exist", "unknown node or class"),
        (of_places(lies.twice), f"{UNUSABLE}it seats 12 pods of gang", "not what was asked"),
        (of_places(lies.far_too_many), f"{UNUSABLE}it seats", "not what was asked"),
        (of_places(lies.a_part), f"{UNUSABLE}it seats 5 of gang", "fewer than must start together"),
        (of_places(lies.nobody), f"{UNUSABLE}it seats 0 of gang", "fewer than must start together"),
        (of_places(lies.empty_assignments), f"{UNUSABLE}it seats 0 pods on node", "not what was asked"),
        (of_places(lies.of_another_gang), f"{UNUSABLE}it seats role 0 of gang", "not what was asked"),
        (of_places(lies.of_another_role), f"{UNUSABLE}it seats role 7 of gang", "not what was asked"),
        (of_places(lies.of_another_group), "placement gave no answer for this gang", "no answer for the gang"),
        (lies.nothing_at_all, "placement gave no answer for this gang", "no answer for the gang"),
        (of_places(lies.an_outcome_that_is_none), "its answer cannot be decoded", "no answer that can be read"),
    ],
)
async def test_a_gang_that_is_lied_about_waits_and_is_told_why(
    scene: Scene, lie: Lie, reason: str, counted: str
) -> None:
    await scene.nodes(4, 4)
    a = gang("a").of(6)
    with scene.cluster.solves.lying(lie):
        await scene.create(a)
        await scene.waits(a, reason)
        await scene.unschedulable(a, reason)
        assert scene.bound_pods(a) == {}
        assert await rejected(scene, a) == {counted}
    await scene.bound(a)


async def test_i3_a_node_is_not_overfilled_whatever_placement_says(scene: Scene) -> None:
    small, _ = await scene.nodes(4, 8)
    a = gang("a").of(6)
    with scene.cluster.solves.lying(lies.all_on(small)):
        await scene.create(a)
        await scene.waits(a, f"{UNUSABLE}node {small} has 4000 cpu free, 6000 would be used")
        assert scene.bound_pods(a) == {}
        assert await rejected(scene, a) == {"no room"}
    await scene.bound(a)


async def test_i3_two_gangs_are_not_given_the_same_room(scene: Scene) -> None:
    small, _ = await scene.nodes(6, 4)
    a, b = gang("a").of(4), gang("b").of(4)
    with scene.cluster.solves.lying(lies.all_on(small)):
        await scene.create(a, b)
        first = await scene.one_bound(a, b)
        second = b if first is a else a
        await scene.waits(second, f"{UNUSABLE}node {small} has 2000 cpu free, 4000 would be used")
    await scene.bound(second)


async def test_a_node_that_does_not_take_such_pods_is_refused(scene: Scene) -> None:
    closed, _ = await scene.nodes(8, 8)
    await scene.cordon(closed)
    a = gang("a").of(4)
    with scene.cluster.solves.lying(lies.all_on(closed)):
        await scene.create(a)
        await scene.waits(a, f"{UNUSABLE}node {closed}: node(s) were unschedulable")
        assert await rejected(scene, a) == {"a node that does not take such pods"}
    await scene.bound(a)


async def test_i1_a_strict_gang_does_not_start_in_part_though_placement_says_so(scene: Scene) -> None:
    await scene.nodes(4, 4)
    a = gang("a").of(6)
    with scene.cluster.solves.lying(of_places(lies.in_part)) as told:
        await scene.create(a)
        await scene.cluster.until(lambda: told, "placement was asked")
        await scene.waits(a)
        assert scene.bound_pods(a) == {}
    await scene.nodes(1)  # it is asked for again when something changes
    await scene.bound(a)


async def test_a_hard_constraint_that_an_answer_breaks_is_told(scene: Scene) -> None:
    one, other = await scene.nodes(4, 4)
    a = gang("a").of(4).marked({"muster.dev/topology": "node: hard pack"})
    with scene.cluster.solves.lying(lies.divided_over(one, other)):
        await scene.create(a)
        await scene.waits(a, f'{UNUSABLE}it divides the members in a way that "node: hard pack" forbids')
        assert scene.bound_pods(a) == {}
        assert await rejected(scene, a) == {"a hard constraint does not hold"}
    await scene.bound(a)
    assert len(scene.per_node(a)) == 1


async def test_silence_costs_a_pause_and_no_more(scene: Scene) -> None:
    await scene.nodes(4)
    a, single = gang("a").of(3), plain("single")
    with scene.cluster.solves.lying(lies.silence):
        await scene.create(a)
        await scene.waits(a, "placement is not available: DEADLINE_EXCEEDED")
        assert scene.bound_pods(a) == {}
    await scene.create(single)
    await scene.bound(a, single)


async def test_i9_nobody_goes_who_was_not_offered(scene: Scene) -> None:
    await scene.nodes(4)
    low, high = gang("low").of(4).with_priority(0), gang("high").of(2).with_priority(10)
    await scene.create(low)
    await scene.bound(low)
    before = scene.uids(low)
    with scene.cluster.solves.lying(lies.removing_another("koordinator/nowhere/nobody")) as told:
        await scene.create(high)
        await scene.cluster.until(lambda: any(map(removes, told)), "somebody was to go")
        await scene.waits(high)
        assert scene.uids(low) == before
    await scene.bound(high)


async def test_i9_nobody_goes_for_a_gang_that_has_a_place(scene: Scene) -> None:
    node, _ = await scene.nodes(4, 4)
    low, high = gang("low").of(4).with_priority(0), gang("high").of(4).with_priority(10)
    await scene.create(low)
    await scene.bound(low)
    before = scene.uids(low)
    with scene.cluster.solves.lying(lies.removing_without_need(scene.here(low).id, node)):
        await scene.create(high)
        await scene.bound(high)
    assert scene.uids(low) == before
    assert len(scene.bound_pods(low)) == 4
