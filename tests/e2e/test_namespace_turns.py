"""A namespace with many pending gangs does not delay a gang of another namespace that fits."""

import pytest

from builders.e2e.world import World
from builders.gangs.manifests import gang
from muster.coordinator.v1.coordinator_pb2 import Phase

pytestmark = pytest.mark.asyncio(loop_scope="session")

GANGS = 350
"""More than three solve requests take in queue order."""


def in_queue(world: World) -> list[str]:
    """Gangs that wait for a solve or for its answer."""
    phases = (Phase.PHASE_QUEUED, Phase.PHASE_SOLVING)
    return [id_ for id_, each in world.cluster.gangs.items() if each.phase in phases]


async def test_a_gang_of_another_namespace_is_in_the_next_request(world: World) -> None:
    await world.nodes(2)
    crowd = [gang(f"crowd-{number:03}").of(1).asking(cpu=100 + number) for number in range(GANGS)]
    other = gang("other").in_namespace(f"{world.name}-other").of(2)
    asked = len(world.cluster.solves.asked)
    with world.cluster.frozen("placement"):
        await world.create(*crowd)
        await world.create(other)
        await world.cluster.until(lambda: len(world.cluster.solves.asked) > asked, "a request is under way")
        await world.cluster.until(lambda: len(in_queue(world)) == GANGS + 1, "all gangs are queued")
        before = len(world.cluster.solves.asked)
    await world.bound(other)
    requests = [{group.id for group in request.groups} for request in world.cluster.solves.asked[before:]]
    assert world.here(other).id in requests[0], "behind the request under way and no other"
    for each in (crowd[0], crowd[-1]):
        await world.waits(each, "Insufficient cpu")
