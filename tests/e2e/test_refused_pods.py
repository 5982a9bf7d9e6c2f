"""A ResourceQuota refuses a gang's missing pods: conditions, events and commands say so, until it is raised."""

import pytest

from builders.e2e.cluster import JSON
from builders.e2e.world import World
from builders.gangs.manifests import gang
from builders.wait import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")


def pending_message(pod: JSON) -> str:
    conditions = pod.get("status", {}).get("conditions") or ()
    return next((str(each.get("message")) for each in conditions if each["type"] == "PodScheduled"), "")


async def test_a_quota_that_refuses_the_missing_pods_is_named_everywhere(world: World) -> None:
    cluster = world.cluster
    cluster.api_server.needs_controllers()
    await world.nodes(8)
    train = world.here(gang("train").of(4).declared_by("lightweight"))
    namespace = train.namespace
    await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team", "namespace": namespace}}
    await cluster.apply({**quota, "spec": {"hard": {"pods": "3"}}})
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/team"

    async def is_enforced() -> bool:
        return "used" in (await cluster.call("GET", path)).get("status", {})

    await eventually(is_enforced, "the quota is enforced")
    await world.create_job(train, "train", 4)
    why = (
        f"gang {namespace}/train is pending: 3 of 4 members exist; its controller cannot create more pods: "
        "Job train: exceeded quota: team, requested: pods=1, used: pods=3, limited: pods=3; "
        "raise the ResourceQuota, or lower what its pods request"
    )
    await world.waits(train, why)

    def pods() -> list[JSON]:
        return [pod for (each, _), pod in cluster.pods.items() if each == namespace]

    await cluster.until(lambda: [pending_message(pod) for pod in pods()] == [why] * 3, "all conditions say why")
    names = [pod["metadata"]["name"] for pod in pods()]
    await cluster.until(
        lambda: any(why in (each.get("note") or each["message"]) for each in cluster.events_of(namespace, names)),
        "an event says why",
    )
    for command in (("explain", train.id), ("gangs", "-n", namespace)):
        printed = " ".join((await cluster.muster(*command)).split())
        assert printed.count("exceeded quota: team") == 1, printed
    await cluster.merge(path, {"spec": {"hard": {"pods": "9"}}})
    await world.all_members_bound(train, 4)
