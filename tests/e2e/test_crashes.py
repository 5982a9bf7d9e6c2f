"""Processes are killed at critical moments; gangs complete on the permitted nodes and report why they wait."""

import asyncio
import itertools

import pytest

from builders.e2e.faults import BINDS
from builders.e2e.world import World, bind_by_hand
from builders.gangs.manifests import gang, plain
from muster.coordinator.v1.record_pb2 import GangRecord

pytestmark = pytest.mark.asyncio(loop_scope="session")

SERVICES = ("cluster-state", "placement", "binding", "coordinator")


def decided(record: GangRecord) -> dict[str, str]:
    """Permitted nodes by pod name."""
    return {pod.name: seat.node for seat in record.seats for pod in seat.pods}


async def permitted(world: World, gang_id: str) -> GangRecord:
    """Wait until the permit is in etcd."""
    history = world.cluster.records.history
    await world.cluster.until(lambda: any(record.seats for record in history[gang_id]), f"a permit of {gang_id}")
    return next(record for record in history[gang_id] if record.seats)


async def test_g20_coordinator_killed_after_the_permit_and_before_any_bind_i1_i2_i4_i6(world: World) -> None:
    await world.nodes(4, 4, 4)
    a = gang("a").of(10)
    with world.cluster.faults.hold(BINDS) as held:
        [placed] = await world.create(a)
        permit = await permitted(world, placed.id)
        await world.cluster.stack.kill("coordinator")
        assert world.bound_pods(a) == {}
        held.drop()
    await world.cluster.stack.start(["coordinator"])
    await world.bound(a)
    assert world.bound_pods(a) == decided(permit)


@pytest.mark.parametrize("service", ["coordinator", "binding"])
async def test_a_service_is_killed_in_the_middle_of_the_binds_i1_i4_i6(world: World, service: str) -> None:
    await world.nodes(4, 4, 4)
    a = gang("a").of(10)
    with world.cluster.faults.hold(BINDS, let_pass=4) as held:
        [placed] = await world.create(a)
        await world.bound(a, count=4)
        await held.until(1)
        await world.cluster.stack.kill(service)
        held.drop()
        await world.cluster.stack.start([service])
    await world.bound(a)
    assert world.bound_pods(a) == decided(await permitted(world, placed.id))


async def test_g21_two_permitted_seats_are_taken_while_the_coordinator_is_down_i3_i6(world: World) -> None:
    await world.nodes(*[4] * 5)
    a, thief = gang("a").of(10), gang("thief").of(2)
    with world.cluster.faults.hold(BINDS, let_pass=4) as held:
        [placed] = await world.create(a)
        await world.bound(a, count=4)
        await held.until(1)
        for name in ("coordinator", "binding"):  # binding still executes what it was instructed to do
            await world.cluster.stack.kill(name)
        held.drop()
    taken = [node for pod, node in decided(await permitted(world, placed.id)).items() if pod not in world.bound_pods(a)]
    room = {node: 4 - world.per_node(a)[node] for node in set(taken)}
    node = taken[0]
    await world.bind_by_hand(thief.asking(cpu=room[node]).of(1), {0: node})
    await world.cluster.stack.start()
    await world.bound(a)
    assert world.bound_pods(a) != decided(await permitted(world, placed.id))
    await world.satisfied(a)


@pytest.mark.timeout(300)  # a real API server needs longer to create and delete this many
async def test_g21_of_800_pods_400_are_bound_and_two_seats_taken_i6_i10(world: World) -> None:
    """The gang reports the missing capacity, and the two are placed elsewhere once it is free."""
    await world.nodes(*[100] * 8)
    a, thief = gang("a").of(800), plain("thief").asking(cpu=2)
    with world.cluster.faults.hold(BINDS, let_pass=400) as held:
        [placed] = await world.create(a)
        await world.bound(a, count=400)
        await held.until(1)
        for name in ("coordinator", "binding"):
            await world.cluster.stack.kill(name)
        held.drop()
    seats = decided(await permitted(world, placed.id))
    taken = next(node for pod, node in seats.items() if pod not in world.bound_pods(a))
    await world.bind_by_hand(thief, {0: taken})
    await world.cluster.stack.start()
    await world.bound(a, count=798)
    short = await world.phase(a, "repairing")
    assert "2 of 800 pods lost their node" in short.reason
    assert len(world.bound_pods(a)) == 798
    await world.event(a, "2 of 800 pods lost their node")
    await world.nodes(2)
    await world.bound(a)
    moved = {pod for pod, node in world.bound_pods(a).items() if seats[pod] != node}
    assert len(moved) == 2
    await world.satisfied(a)


async def test_coordinator_killed_right_after_the_last_bind_i4_i5(world: World) -> None:
    await world.nodes(4, 4)
    a, b = gang("a").of(6), gang("b").of(2)
    [placed] = await world.create(a)
    await world.bound(a)
    await world.cluster.stack.kill("coordinator")
    before = world.bound_pods(a)
    await world.cluster.stack.start(["coordinator"])
    await world.satisfied(a)
    await world.create(b)
    await world.bound(b)
    assert world.bound_pods(a) == before
    records = world.cluster.records
    await world.cluster.until(lambda: not records.present[placed.id].seats, "the record holds no seats any more")


async def test_coordinator_killed_between_a_solve_and_its_permit_decides_anew(world: World) -> None:
    await world.nodes(4)
    a = gang("a").of(4)
    await world.cluster.stack.stop_one("etcd")
    await world.create(a)
    await world.cluster.stack.kill("coordinator")
    await world.cluster.stack.start()
    await world.bound(a)


async def test_binds_with_lost_responses_are_repeated_idempotently_i4(world: World) -> None:
    await world.nodes(4, 4)
    a = gang("a").of(8)
    with world.cluster.faults.cut(BINDS, times=5, carried_out=True):
        await world.create(a)
        await world.bound(a)
    await world.satisfied(a)


async def test_pending_gangs_start_after_placement_was_killed(world: World) -> None:
    await world.nodes(2)
    a = gang("a").of(3)
    await world.create(a)
    await world.waits(a)
    await world.cluster.stack.kill("placement")
    await world.nodes(1)
    await world.cluster.stack.start(["placement"])
    await world.bound(a)


async def test_changes_during_a_cluster_state_outage_are_not_lost(world: World) -> None:
    await world.nodes(2)
    a, gone = gang("a").of(3), gang("gone").of(5)
    await world.create(a, gone)
    await world.waits(a)
    await world.waits(gone)
    await world.cluster.stack.kill("cluster-state")
    await world.delete(gone)
    await world.nodes(1)
    await world.cluster.stack.start(["cluster-state"])
    await world.bound(a)


@pytest.mark.parametrize("order", [SERVICES, SERVICES[::-1], ("binding", "coordinator", "cluster-state", "placement")])
async def test_services_restart_in_any_order_while_gangs_are_created(world: World, order: tuple[str, ...]) -> None:
    await world.nodes(8, 8)
    gangs = [gang(f"g{number}").of(4) for number in range(4)]
    for victim, late in zip(order, gangs, strict=True):
        await asyncio.gather(world.create(late), world.cluster.stack.kill(victim))
        await world.cluster.stack.start([victim])
    await world.bound(*gangs)


@pytest.mark.parametrize("first", SERVICES)
async def test_gangs_continue_after_all_services_were_killed_at_once(world: World, first: str) -> None:
    await world.nodes(4)
    a, b = gang("a").of(2), gang("b").of(2)
    await world.create(a)
    await world.bound(a)
    for name in SERVICES:
        await world.cluster.stack.kill(name)
    await world.create(b)
    rest = itertools.chain([first], (name for name in SERVICES if name != first))
    for name in rest:
        await world.cluster.stack.children[name].start()
    await world.bound(b)
    await asyncio.wait_for(world.cluster.stack.ready(), 60)


async def test_pods_deleted_during_binding_leak_nothing_i5_i6(world: World) -> None:
    await world.nodes(4)
    a, b = gang("a").of(4), gang("b").of(2)
    with world.cluster.faults.hold(BINDS, let_pass=2) as held:
        [placed] = await world.create(a)
        await world.bound(a, count=2)
        await held.until(1)
        doomed = [number for number in range(4) if a.pod_name(number) not in world.bound_pods(a)]
        world.cluster.invariants.excuse(placed.id)
        await world.delete_pods(a, *doomed)
        held.release()
    await world.create(b)
    await world.bound(b)
    await world.phase(a, "repairing")


async def test_a_node_deleted_after_the_permit_is_replaced_i6(world: World) -> None:
    nodes = await world.nodes(4, 4, 4)
    a = gang("a").of(8)
    with world.cluster.faults.hold(BINDS) as held:
        [placed] = await world.create(a)
        used = set(decided(await permitted(world, placed.id)).values())
        await held.until(1)
        await world.remove_nodes(next(node for node in nodes if node in used))
        await world.cluster.stack.kill("binding")
        held.drop()
    await world.cluster.stack.start(["binding"])
    await world.bound(a)
    assert set(world.bound_pods(a).values()) <= set(nodes) - set(world.removed)


async def test_g38_a_member_bound_by_another_scheduler_is_accepted(world: World) -> None:
    nodes = await world.nodes(4, 4, 4)
    a = gang("a").of(4)
    with world.cluster.faults.hold(BINDS) as held:
        [placed] = await world.create(a)
        seats = decided(await permitted(world, placed.id))
        await held.until(1)
        pod = sorted(seats)[0]
        elsewhere = next(node for node in nodes if node != seats[pod])
        await bind_by_hand(world.cluster, placed.namespace, pod, elsewhere)
        held.release()
    await world.bound(a)
    assert world.bound_pods(a)[pod] == elsewhere
    await world.satisfied(a)
