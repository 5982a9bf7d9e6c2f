"""All dialects in one cluster, beside a pod-by-pod scheduler on the same nodes."""

import asyncio

import pytest

from builders.e2e.faults import BINDS
from builders.e2e.observations import LABEL
from builders.e2e.world import World
from builders.gangs.dialects import DIALECTS, DeclaredGang, declared_in
from builders.gangs.manifests import plain
from muster.coordinator.v1.coordinator_pb2 import Phase
from muster.coordinator.v1.record_pb2 import GangRecord

pytestmark = pytest.mark.asyncio(loop_scope="session")

SIZE = 3


@pytest.fixture(autouse=True)
def all_kinds(world: World) -> None:
    """QueueJobs need a garbage collector, and PodGroups of scheduling.k8s.io are not always served."""
    world.cluster.api_server.needs_native()


def written(world: World, *dialects: str) -> list[DeclaredGang]:
    """A gang of three in each of these dialects, on the world's nodes."""
    server = world.cluster.api_server
    if "native" in dialects:
        server.needs_native()
    return [
        declared_in(
            *(dialect, world.name, f"{dialect}-gang", SIZE, {LABEL: world.name}),
            native_version=next(iter(server.native_versions), ""),
        )
        for dialect in dialects
    ]


async def started(world: World, *gangs: DeclaredGang) -> None:
    """Wait until all members of all gangs are bound."""

    def all_are_bound() -> bool:
        found = [world.cluster.gangs.get(gang.id) for gang in gangs]
        return all(gang is not None and gang.bound == SIZE and gang.phase == Phase.PHASE_SATISFIED for gang in found)

    await world.cluster.until(all_are_bound, f"{len(gangs)} gangs are bound")


async def test_gangs_of_all_dialects_start_beside_another_scheduler_i1_i3(world: World) -> None:
    names = await world.nodes(*[8] * 6)
    gangs = written(world, *DIALECTS)
    strangers = plain("stranger").of(12).with_spec(schedulerName="another")
    elsewhere = [world.bind_by_hand(strangers, {number: names[number % 6]}) for number in range(12)]
    await asyncio.gather(world.declare(*gangs), *elsewhere)
    await started(world, *gangs)
    assert len(world.bound_pods(strangers)) == 12
    for gang in gangs:
        answer = await world.cluster.explain(gang.id)
        assert any(gang.term in term for term in answer.gang.terms), (gang.id, list(answer.gang.terms))


async def test_gangs_of_all_dialects_that_do_not_fit_bind_nothing_and_report_why_i1_i10(world: World) -> None:
    await world.nodes(2)
    gangs = written(world, *DIALECTS)
    await world.declare(*gangs)

    def all_wait() -> bool:
        found = [world.cluster.gangs.get(gang.id) for gang in gangs]
        return all(gang is not None and "2 of 3 members fit" in gang.reason for gang in found)

    await world.cluster.until(all_wait, "all gangs wait for room for one more")
    assert not any(world.cluster.gangs[gang.id].bound for gang in gangs)


@pytest.mark.parametrize("dialect", ["kube-batch", "batch", "kube-arbitrator", "sakkara", "native"])
async def test_a_seat_lost_to_another_scheduler_is_replaced_i3_i6(world: World, dialect: str) -> None:
    """G21: between the permit and the bind another scheduler takes the capacity."""
    names = await world.nodes(4, 4)
    [gang] = written(world, dialect)
    history = world.cluster.records.history
    with world.cluster.faults.hold(BINDS) as held:
        await world.declare(gang)
        await world.cluster.until(lambda: any(each.seats for each in history[gang.id]), f"a permit of {gang.id}")
        await held.until(1)
        for name in ("coordinator", "binding"):  # binding still executes what it was instructed to do
            await world.cluster.stack.kill(name)
        held.drop()
    permit = next(each for each in history[gang.id] if each.seats)
    lost = node_of_most(permit)
    await world.bind_by_hand(plain("thief").asking(cpu=3), {0: lost})
    await world.cluster.stack.start()
    await started(world, gang)
    [other] = set(names) - {lost}
    pods = [pod for (namespace, _), pod in world.cluster.pods.items() if namespace == world.name]
    nodes = [pod["spec"]["nodeName"] for pod in pods if pod["metadata"]["name"] != "thief-0"]
    assert nodes.count(lost) <= 1
    assert nodes.count(other) >= 2


def node_of_most(permit: GangRecord) -> str:
    """The node that is to hold most of its pods."""
    return max(permit.seats, key=lambda seat: len(seat.pods)).node
