"""Processes are killed at the worst moments; gangs end whole, on the nodes that were decided, and never in silence."""

import asyncio
import itertools

import pytest

from builders.e2e.faults import BINDS
from builders.e2e.world import Scene, bind_by_hand
from builders.gangs.workloads import gang, plain
from muster.coordinator.v1.record_pb2 import GangRecord

pytestmark = pytest.mark.asyncio(loop_scope="session")

SERVICES = ("cluster-state", "placement", "binding", "coordinator")


def decided(record: GangRecord) -> dict[str, str]:
    """Node by pod name."""
    return {pod.name: seat.node for seat in record.seats for pod in seat.pods}


async def permitted(scene: Scene, gang_id: str) -> GangRecord:
    """Wait for the permit to be in etcd."""
    history = scene.cluster.records.history
    await scene.cluster.until(lambda: any(record.seats for record in history[gang_id]), f"a permit of {gang_id}")
    return next(record for record in history[gang_id] if record.seats)


async def test_g20_coordinator_killed_after_the_permit_and_before_any_bind_i1_i2_i4_i6(scene: Scene) -> None:
    await scene.nodes(4, 4, 4)
    a = gang("a").of(10)
    with scene.cluster.faults.hold(BINDS) as held:
        [placed] = await scene.create(a)
        permit = await permitted(scene, placed.id)
        await scene.cluster.stack.kill("coordinator")
        assert scene.bound_pods(a) == {}
        held.drop()
    await scene.cluster.stack.start(["coordinator"])
    await scene.bound(a)
    assert scene.bound_pods(a) == decided(permit)


async def test_coordinator_killed_in_the_middle_of_the_binds_i1_i4_i6(scene: Scene) -> None:
    await scene.nodes(4, 4, 4)
    a = gang("a").of(10)
    with scene.cluster.faults.hold(BINDS, let_pass=4) as held:
        [placed] = await scene.create(a)
        await scene.bound(a, count=4)
        await held.until(1)
        await scene.cluster.stack.kill("coordinator")
        held.drop()
        await scene.cluster.stack.start(["coordinator"])
    await scene.bound(a)
    assert scene.bound_pods(a) == decided(await permitted(scene, placed.id))


async def test_g21_while_the_coordinator_is_down_others_take_two_of_the_decided_seats_i3_i6(scene: Scene) -> None:
    await scene.nodes(*[4] * 5)
    a, thief = gang("a").of(10), gang("thief").of(2)
    with scene.cluster.faults.hold(BINDS, let_pass=4) as held:
        [placed] = await scene.create(a)
        await scene.bound(a, count=4)
        await held.until(1)
        for name in ("coordinator", "binding"):  # what binding was told it would still do by itself
            await scene.cluster.stack.kill(name)
        held.drop()
    taken = [node for pod, node in decided(await permitted(scene, placed.id)).items() if pod not in scene.bound_pods(a)]
    room = {node: 4 - scene.per_node(a)[node] for node in set(taken)}
    node = taken[0]
    await scene.bind_by_hand(thief.asking(cpu=room[node]).of(1), {0: node})
    await scene.cluster.stack.start()
    await scene.bound(a)
    assert scene.bound_pods(a) != decided(await permitted(scene, placed.id))
    await scene.satisfied(a)


@pytest.mark.timeout(300)  # a real API server takes its time to make and delete so many
async def test_g21_800_pods_of_which_400_were_bound_and_two_seats_were_taken_i6_i10(scene: Scene) -> None:
    """While it is short it says so, and when room comes the two are placed elsewhere."""
    await scene.nodes(*[100] * 8)
    a, thief = gang("a").of(800), plain("thief").asking(cpu=2)
    with scene.cluster.faults.hold(BINDS, let_pass=400) as held:
        [placed] = await scene.create(a)
        await scene.bound(a, count=400)
        await held.until(1)
        for name in ("coordinator", "binding"):
            await scene.cluster.stack.kill(name)
        held.drop()
    seats = decided(await permitted(scene, placed.id))
    taken = next(node for pod, node in seats.items() if pod not in scene.bound_pods(a))
    await scene.bind_by_hand(thief, {0: taken})
    await scene.cluster.stack.start()
    await scene.bound(a, count=798)
    short = await scene.phase(a, "repairing")
    assert "2 of 800 pods lost their node" in short.reason
    assert len(scene.bound_pods(a)) == 798
    await scene.event(a, "2 of 800 pods lost their node")
    await scene.nodes(2)
    await scene.bound(a)
    moved = {pod for pod, node in scene.bound_pods(a).items() if seats[pod] != node}
    assert len(moved) == 2
    await scene.satisfied(a)


async def test_coordinator_killed_right_after_the_last_bind_i4_i5(scene: Scene) -> None:
    await scene.nodes(4, 4)
    a, b = gang("a").of(6), gang("b").of(2)
    [placed] = await scene.create(a)
    await scene.bound(a)
    await scene.cluster.stack.kill("coordinator")
    before = scene.bound_pods(a)
    await scene.cluster.stack.start(["coordinator"])
    await scene.satisfied(a)
    await scene.create(b)
    await scene.bound(b)
    assert scene.bound_pods(a) == before
    records = scene.cluster.records
    await scene.cluster.until(lambda: not records.present[placed.id].seats, "the record holds no seats any more")


async def test_coordinator_killed_between_a_solve_and_its_permit_decides_anew(scene: Scene) -> None:
    await scene.nodes(4)
    a = gang("a").of(4)
    await scene.cluster.stack.stop_one("etcd")
    await scene.create(a)
    await scene.cluster.stack.kill("coordinator")
    await scene.cluster.stack.start()
    await scene.bound(a)


async def test_binding_killed_in_the_middle_of_a_gang_i1_i4_i6(scene: Scene) -> None:
    await scene.nodes(4, 4, 4)
    a = gang("a").of(10)
    with scene.cluster.faults.hold(BINDS, let_pass=3) as held:
        [placed] = await scene.create(a)
        await scene.bound(a, count=3)
        await held.until(1)
        await scene.cluster.stack.kill("binding")
        held.drop()
        await scene.cluster.stack.start(["binding"])
    await scene.bound(a)
    assert scene.bound_pods(a) == decided(await permitted(scene, placed.id))


async def test_binds_whose_answers_are_lost_are_repeated_without_harm_i4(scene: Scene) -> None:
    await scene.nodes(4, 4)
    a = gang("a").of(8)
    with scene.cluster.faults.cut(BINDS, times=5, carried_out=True):
        await scene.create(a)
        await scene.bound(a)
    await scene.satisfied(a)


async def test_placement_killed_while_gangs_wait_comes_back_and_they_start(scene: Scene) -> None:
    await scene.nodes(2)
    a = gang("a").of(3)
    await scene.create(a)
    await scene.waits(a)
    await scene.cluster.stack.kill("placement")
    await scene.nodes(1)
    await scene.cluster.stack.start(["placement"])
    await scene.bound(a)


async def test_cluster_state_killed_and_what_happens_meanwhile_is_not_lost(scene: Scene) -> None:
    await scene.nodes(2)
    a, gone = gang("a").of(3), gang("gone").of(5)
    await scene.create(a, gone)
    await scene.waits(a)
    await scene.waits(gone)
    await scene.cluster.stack.kill("cluster-state")
    await scene.delete(gone)
    await scene.nodes(1)
    await scene.cluster.stack.start(["cluster-state"])
    await scene.bound(a)


@pytest.mark.parametrize("order", [SERVICES, SERVICES[::-1], ("binding", "coordinator", "cluster-state", "placement")])
async def test_services_killed_and_started_in_any_order_while_gangs_come(scene: Scene, order: tuple[str, ...]) -> None:
    await scene.nodes(8, 8)
    gangs = [gang(f"g{number}").of(4) for number in range(4)]
    for victim, late in zip(order, gangs, strict=True):
        await asyncio.gather(scene.create(late), scene.cluster.stack.kill(victim))
        await scene.cluster.stack.start([victim])
    await scene.bound(*gangs)


@pytest.mark.parametrize("first", SERVICES)
async def test_all_services_killed_together_and_started_one_by_one(scene: Scene, first: str) -> None:
    await scene.nodes(4)
    a, b = gang("a").of(2), gang("b").of(2)
    await scene.create(a)
    await scene.bound(a)
    for name in SERVICES:
        await scene.cluster.stack.kill(name)
    await scene.create(b)
    rest = itertools.chain([first], (name for name in SERVICES if name != first))
    for name in rest:
        await scene.cluster.stack.children[name].start()
    await scene.bound(b)
    await asyncio.wait_for(scene.cluster.stack.ready(), 60)


async def test_pods_deleted_while_their_gang_is_bound_leave_nothing_behind_i5_i6(scene: Scene) -> None:
    await scene.nodes(4)
    a, b = gang("a").of(4), gang("b").of(2)
    with scene.cluster.faults.hold(BINDS, let_pass=2) as held:
        [placed] = await scene.create(a)
        await scene.bound(a, count=2)
        await held.until(1)
        doomed = [number for number in range(4) if a.pod_name(number) not in scene.bound_pods(a)]
        scene.cluster.invariants.excuse(placed.id)
        await scene.delete_pods(a, *doomed)
        held.release()
    await scene.satisfied(a)
    await scene.create(b)
    await scene.bound(b)


async def test_a_node_that_vanishes_after_the_permit_is_replaced_i6(scene: Scene) -> None:
    nodes = await scene.nodes(4, 4, 4)
    a = gang("a").of(8)
    with scene.cluster.faults.hold(BINDS) as held:
        [placed] = await scene.create(a)
        used = set(decided(await permitted(scene, placed.id)).values())
        await held.until(1)
        await scene.remove_nodes(next(node for node in nodes if node in used))
        await scene.cluster.stack.kill("binding")
        held.drop()
    await scene.cluster.stack.start(["binding"])
    await scene.bound(a)
    assert set(scene.bound_pods(a).values()) <= set(nodes) - set(scene.removed)


async def test_a_foreign_scheduler_binds_a_member_first_and_that_is_accepted_g38(scene: Scene) -> None:
    nodes = await scene.nodes(4, 4, 4)
    a = gang("a").of(4)
    with scene.cluster.faults.hold(BINDS) as held:
        [placed] = await scene.create(a)
        seats = decided(await permitted(scene, placed.id))
        await held.until(1)
        pod = sorted(seats)[0]
        elsewhere = next(node for node in nodes if node != seats[pod])
        await bind_by_hand(scene.cluster, placed.namespace, pod, elsewhere)
        held.release()
    await scene.bound(a)
    assert scene.bound_pods(a)[pod] == elsewhere
    await scene.satisfied(a)
