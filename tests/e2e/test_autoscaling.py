"""Gangs as autoscalers see them: which pods ask for nodes, and when they stop."""

from collections import Counter

import pytest

from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_nodes_are_asked_for_while_a_complete_gang_is_short_of_them(world: World) -> None:
    await world.nodes(1)
    a = gang("a").of(4)
    await world.create(a, only=(0, 1, 2))
    await world.unschedulable(a, "3 of 4 members exist", reason="GangIncomplete")
    await world.add_pods(a, 3)
    await world.unschedulable(a, "1 of 4 members fit", reason="Unschedulable")
    await world.delete_pods(a, 3)
    await world.unschedulable(a, "3 of 4 members exist", reason="GangIncomplete")
    await world.add_pods(a, 3)
    await world.unschedulable(a, "1 of 4 members fit", reason="Unschedulable")
    await world.nodes(3)
    await world.bound(a)


def nominated(world: World, workload: Workload) -> Counter[str]:
    """Number of pods of the workload by nominated node; "" for pods without one."""
    pods = (world.cluster.pods.get((workload.namespace, workload.pod_name(number))) for number in range(workload.size))
    return Counter(pod["status"].get("nominatedNodeName", "") for pod in pods if pod is not None)


async def test_members_that_hold_reservations_have_nominated_nodes_also_after_a_crash(world: World) -> None:
    n, m = await world.nodes(2, 1)
    a = world.here(gang("a").of(5).non_strict(waiting_time_seconds=600))
    await world.create(a)
    held = Counter({n: 2, m: 1, "": 2})
    await world.cluster.until(lambda: nominated(world, a) == held, "3 members have the nodes of their reservations")
    await world.cluster.stack.kill("coordinator")
    await world.remove_nodes(m)
    await world.cluster.stack.start(["coordinator"])
    left = Counter({n: 2, "": 3})
    await world.cluster.until(lambda: nominated(world, a) == left, "the removed node is nominated no longer")
    await world.nodes(3)
    await world.bound(a)
    assert nominated(world, a) == Counter({"": 5})
