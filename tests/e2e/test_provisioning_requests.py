"""A gang that wants a ProvisioningRequest gets all of its nodes from a simulated autoscaler, and starts on them."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from builders.e2e.autoscaler import Autoscaler, install
from builders.e2e.cluster import Cluster, running_cluster
from builders.e2e.world import World
from builders.gangs.manifests import gang

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """All processes; lifecycle creates ProvisioningRequests."""
    directory, setting = tmp_path_factory.mktemp("provisioning"), {"MUSTER_LIFECYCLE_PROVISIONING_REQUESTS": "true"}
    async with running_cluster(directory, service_environment=setting, start=()) as cluster:
        await install(cluster)
        await cluster.begin()
        yield cluster


async def test_a_gang_starts_on_the_nodes_that_were_provisioned_for_it(world: World) -> None:
    await world.nodes(1)
    a = gang("a").of(4).marked({"muster.dev/provisioning-request": "true"})
    autoscaler = Autoscaler(world, a)
    await world.create(a, only=(0, 1, 2))
    await world.unschedulable(a, "3 of 4 members exist", reason="GangIncomplete")
    await world.add_pods(a, 3)
    request = await autoscaler.request(pods=4)
    await autoscaler.answer(request, "False", "no node group can take 4 pods")
    await world.event(a, "no node group can take 4 pods", kind="Warning")
    await autoscaler.provision(request, 2, 1)
    await world.bound(a)
    await autoscaler.gone()
