"""ProvisioningRequests of gangs that want them, on an API server, with a simulated autoscaler."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from builders.kube.client import ApiClient, node
from builders.lifecycle.provisioning import CRD, condition
from builders.lifecycle.replicas import LifecycleCluster
from builders.wait import eventually
from muster.dialects.muster_annotations import PROVISIONING_REQUEST
from muster.lifecycle.provisioning.request import CLASS, CLASS_ANNOTATION, CONSUMES, request_name

Object = dict[str, Any]

REQUESTS = "/apis/autoscaling.x-k8s.io/v1/namespaces/default/provisioningrequests"
PODS = "/api/v1/namespaces/default/pods"
TEMPLATES = "/api/v1/namespaces/default/podtemplates"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
GANG = "lightweight/default/train"
NAME = request_name(GANG)
MARKS = {"pod-group.scheduling.sigs.k8s.io/name": "train", "pod-group.scheduling.sigs.k8s.io/min-available": "3"}


@pytest.fixture
async def api(rig: LifecycleCluster) -> AsyncIterator[ApiClient]:
    """The API with ProvisioningRequests, a node, and a replica of lifecycle that may create them."""
    await rig.create_crd(CRD)
    await rig.api.created("/api/v1/nodes", node("node-1"))
    async with rig.replica(provisioning_requests=True):
        yield rig.api


async def pods(
    api: ApiClient, *names: str, cpu: str = "1", wanted: str = "true", gate: str = "", consumes: str = ""
) -> None:
    """Creates pods of the gang."""
    annotations = {PROVISIONING_REQUEST: wanted, CONSUMES: consumes}
    for name in names:
        marks = {key: value for key, value in annotations.items() if value}
        metadata = {"name": name, "labels": MARKS, "annotations": marks}
        container = {"name": "main", "image": f"registry.example.com/{name}:1", "resources": {"requests": {"cpu": cpu}}}
        spec = {"schedulerName": "muster", "containers": [container], "nodeSelector": {"pool": "gangs"}}
        gates = {"schedulingGates": [{"name": gate}]} if gate else {}
        await api.created(PODS, {"metadata": metadata, "spec": spec | gates})


async def wait_for(api: ApiClient, reason: str, *names: str) -> None:
    """Muster reports why the pods wait."""
    scheduled = {"type": "PodScheduled", "status": "False", "reason": reason, "message": "1 of 3 members fit"}
    for name in names:
        reply = await api.patch(f"{PODS}/{name}/status", {"status": {"conditions": [scheduled]}})
        assert reply.status == 200, reply.body


async def request_of(api: ApiClient, **counts: int) -> Object:
    """Waits for a request for so many pods by cpu ("cpu1"); returns it."""
    cpus: dict[str, str] = {}

    async def found() -> Object | None:
        reply = await api.get(f"{REQUESTS}/{NAME}")
        if reply.status != 200:
            return None
        for template in (await api.get(TEMPLATES)).body["items"]:
            [container] = template["template"]["spec"]["containers"]
            cpus[template["metadata"]["name"]] = f"cpu{container['resources']['requests']['cpu']}"
        sets = reply.body["spec"]["podSets"]
        asked = {cpus[each["podTemplateRef"]["name"]]: each["count"] for each in sets}
        return reply.body if asked == counts else None

    return await eventually(found)


async def answer(api: ApiClient, *conditions: Object) -> None:
    """The autoscaler answers the request."""
    reply = await api.patch(f"{REQUESTS}/{NAME}/status", {"status": {"conditions": list(conditions)}})
    assert reply.status == 200, reply.body


async def gone(api: ApiClient) -> None:
    await api.until(f"{REQUESTS}/{NAME}", lambda reply: reply.status == 404)


async def consumed(api: ApiClient, name: str) -> None:
    """Waits until the pod is marked as a consumer."""

    def marked(reply: Any) -> bool:
        annotations = reply.body["metadata"].get("annotations", {})
        return (annotations.get(CONSUMES), annotations.get(CLASS_ANNOTATION)) == (NAME, CLASS)

    await api.until(f"{PODS}/{name}", marked)


async def test_a_gang_that_waits_for_nodes_requests_all_of_them(api: ApiClient) -> None:
    await pods(api, "a", "b")
    await consumed(api, "a")
    await wait_for(api, "GangIncomplete", "a", "b")
    await pods(api, "c", cpu="4")
    await consumed(api, "c")
    assert not await api.names(REQUESTS), "nodes would not help an incomplete gang"
    await wait_for(api, "Unschedulable", "a", "b", "c")
    request = await request_of(api, cpu1=2, cpu4=1)
    assert request["spec"]["provisioningClassName"] == CLASS
    assert {owner["name"] for owner in request["metadata"]["ownerReferences"]} == {"a", "b", "c"}
    for template in (await api.get(TEMPLATES)).body["items"]:
        assert template["metadata"]["ownerReferences"]
        assert template["template"]["spec"]["nodeSelector"] == {"pool": "gangs"}


async def test_the_request_ends_when_the_gang_has_started(api: ApiClient) -> None:
    await pods(api, "a", "b")
    await wait_for(api, "Unschedulable", "a", "b")
    await request_of(api, cpu1=2)
    await answer(api, condition("Provisioned", "True", "scale-up was requested"))
    assert (await api.bind("a", "node-1")).status == 201
    await consumed(api, "b")
    assert (await api.get(f"{REQUESTS}/{NAME}")).status == 200, "the other member still waits for its node"
    assert (await api.bind("b", "node-1")).status == 201
    await gone(api)


async def test_the_request_ends_when_the_gang_is_deleted_or_needs_no_nodes(api: ApiClient) -> None:
    await pods(api, "a")
    await wait_for(api, "Unschedulable", "a")
    await request_of(api, cpu1=1)
    await wait_for(api, "Preempting", "a")
    await gone(api)
    await wait_for(api, "Unschedulable", "a")
    await request_of(api, cpu1=1)
    await api.delete(f"{PODS}/a")
    await gone(api)


async def test_a_request_that_is_not_provisioned_follows_the_members_and_says_why(api: ApiClient) -> None:
    await pods(api, "a", "b")
    await wait_for(api, "Unschedulable", "a", "b")
    first = await request_of(api, cpu1=2)
    await answer(api, condition("Provisioned", "False", "no node group has room for 2 pods"))

    def told(reply: Any) -> bool:
        return any("no node group has room for 2 pods" in each["note"] for each in reply.body["items"])

    await api.until(EVENTS, told)
    await pods(api, "c")
    await wait_for(api, "Unschedulable", "c")
    second = await request_of(api, cpu1=3)
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    await answer(api, condition("Provisioned", "True", "scale-up was requested"))
    await pods(api, "d")
    await wait_for(api, "Unschedulable", "d")
    await consumed(api, "d")
    third = await request_of(api, cpu1=3)
    assert third["metadata"]["uid"] == second["metadata"]["uid"], "its nodes are on their way"


@pytest.mark.parametrize("end", ["Failed", "BookingExpired", "CapacityRevoked"])
async def test_a_request_that_ended_in_vain_is_repeated_after_a_pause(api: ApiClient, end: str) -> None:
    await pods(api, "a")
    await wait_for(api, "Unschedulable", "a")
    first = await request_of(api, cpu1=1)
    await answer(api, condition(end, "True", "it took too long", at="2026-01-31T12:00:00Z"))

    async def replaced() -> bool:
        reply = await api.get(f"{REQUESTS}/{NAME}")
        return reply.status == 200 and reply.body["metadata"]["uid"] != first["metadata"]["uid"]

    await eventually(replaced)
    second = await request_of(api, cpu1=1)
    await answer(api, condition(end, "True", "it took too long", at="2096-01-31T12:00:00Z"))
    await pods(api, "b")
    await consumed(api, "b")
    assert (await request_of(api, cpu1=1))["metadata"]["uid"] == second["metadata"]["uid"], "the pause is not over"


async def owners_of_template(api: ApiClient) -> set[str]:
    [template] = (await api.get(TEMPLATES)).body["items"]
    return {owner["name"] for owner in template["metadata"]["ownerReferences"]}


async def test_a_template_that_exists_belongs_to_the_pods_that_wait_now(api: ApiClient) -> None:
    """The pods of a gang are replaced: the template of the former ones would end with them."""
    await pods(api, "a")
    await wait_for(api, "Unschedulable", "a")
    await request_of(api, cpu1=1)
    assert await owners_of_template(api) == {"a"}
    await wait_for(api, "Preempting", "a")
    await gone(api)
    await pods(api, "b", "c")
    await wait_for(api, "Unschedulable", "b", "c")
    await request_of(api, cpu1=2)
    assert await owners_of_template(api) == {"b", "c"}


async def test_nodes_that_come_for_other_pods_are_not_awaited(api: ApiClient) -> None:
    await pods(api, "a")
    await wait_for(api, "Unschedulable", "a")
    await request_of(api, cpu1=1)
    await answer(api, condition("Provisioned", "True", "scale-up was requested"))
    await pods(api, "b", cpu="4")
    await wait_for(api, "Unschedulable", "b")
    await consumed(api, "b")
    await api.delete(f"{PODS}/a")
    await request_of(api, cpu4=1)


async def test_gated_pods_are_marked_once_they_are_released(api: ApiClient) -> None:
    """Kueue adds its own annotations with the release, and fails where there are others."""
    await pods(api, "a", gate="kueue.x-k8s.io/admission")
    await pods(api, "b")
    await consumed(api, "b")
    assert CONSUMES not in (await api.get(f"{PODS}/a")).body["metadata"]["annotations"]
    assert (await api.patch(f"{PODS}/a", {"spec": {"schedulingGates": None}})).status == 200
    await consumed(api, "a")


async def test_pods_that_consume_a_request_of_somebody_else_keep_it(api: ApiClient) -> None:
    await pods(api, "a", "b", consumes="kueue-train")
    await wait_for(api, "Unschedulable", "a", "b")
    await pods(api, "c")
    await wait_for(api, "Unschedulable", "c")
    await request_of(api, cpu1=1)
    for name in ("a", "b"):
        assert (await api.get(f"{PODS}/{name}")).body["metadata"]["annotations"][CONSUMES] == "kueue-train"


async def test_pods_that_want_no_request_any_more_are_no_consumers(api: ApiClient) -> None:
    """Cluster Autoscaler would add no nodes for them, with a request or without."""
    await pods(api, "a")
    await wait_for(api, "Unschedulable", "a")
    await request_of(api, cpu1=1)
    await api.patch(f"{PODS}/a", {"metadata": {"annotations": {PROVISIONING_REQUEST: None}}})
    await gone(api)
    await api.until(f"{PODS}/a", lambda reply: CONSUMES not in (reply.body["metadata"].get("annotations") or {}))


async def test_gangs_that_do_not_want_a_request_get_none(api: ApiClient) -> None:
    await pods(api, "a", wanted="")
    await pods(api, "b", wanted="yes")
    await pods(api, "c")
    await wait_for(api, "Unschedulable", "a", "b", "c")
    await request_of(api, cpu1=1)
    for name in ("a", "b"):
        assert CONSUMES not in ((await api.get(f"{PODS}/{name}")).body["metadata"].get("annotations") or {})


async def test_without_the_setting_nothing_is_requested(rig: LifecycleCluster) -> None:
    await rig.create_crd(CRD)
    async with rig.replica():
        await pods(rig.api, "a")
        await wait_for(rig.api, "Unschedulable", "a")
    async with rig.replica("two", provisioning_requests=True):
        await request_of(rig.api, cpu1=1)
    request = (await rig.api.get(f"{REQUESTS}/{NAME}")).body
    async with rig.replica("three"):
        assert (await rig.api.get(f"{REQUESTS}/{NAME}")).body["metadata"]["uid"] == request["metadata"]["uid"]


async def test_a_new_leader_ends_requests_of_gangs_that_are_gone(rig: LifecycleCluster) -> None:
    await rig.create_crd(CRD)
    async with rig.replica(provisioning_requests=True):
        await pods(rig.api, "a")
        await wait_for(rig.api, "Unschedulable", "a")
        await request_of(rig.api, cpu1=1)
    await wait_for(rig.api, "GangIncomplete", "a")
    async with rig.replica("two", provisioning_requests=True):
        await gone(rig.api)
