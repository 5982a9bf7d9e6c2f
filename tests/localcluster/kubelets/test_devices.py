"""Simulated devices: ResourceSlices of nodes, and pods that wait for their ResourceClaims."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from builders.devices.objects import (
    CLAIMS,
    FINALIZER,
    SLICES,
    TEMPLATES,
    allocation,
    claim,
    reserved_for,
    template,
)
from builders.e2e.local_cluster import running_kubelets
from builders.kube.client import NODES, PODS, ApiClient, Reply, api_client, pod
from muster.devices.decoding import decode_slice
from muster.localcluster.apiserver import ApiServer, Timing
from muster.localcluster.kubelets import SimulatedNode, simulated_nodes
from muster.localcluster.kubelets.devices.options import parse_devices

EVENTS = "/api/v1/namespaces/default/events"


def shapes(*devices: str, count: int = 4) -> list[SimulatedNode]:
    return simulated_nodes(count, devices=[parse_devices(each) for each in devices])


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    server = ApiServer(timing=Timing(orphaned_pod_seconds=0.2))
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[ApiClient]:
    async with api_client(server.url) as client:
        yield client


@pytest.fixture
async def kubelets(server: ApiServer, tmp_path: Path) -> AsyncIterator[None]:
    async with running_kubelets(server, tmp_path, shapes("gpu:2@0", "mig:1@1", "nvlink:1@2-3")):
        yield


def is_running(reply: Reply) -> bool:
    return bool(reply.body["status"]["phase"] == "Running")


async def bound(api: ApiClient, name: str, on: str, *, of_claim: str = "", of_template: str = "", **more: Any) -> Any:
    """A bound pod that uses a claim."""
    source = {"resourceClaimName": of_claim} if of_claim else {"resourceClaimTemplateName": of_template}
    created = await api.created(PODS, pod(name, resourceClaims=[{"name": "gpu", **source}], **more))
    assert (await api.bind(name, on)).status == 201
    return created


async def allocate(api: ApiClient, name: str, *devices: str, node: str, users: list[Any]) -> None:
    await api.patch(f"{CLAIMS}/{name}", {"metadata": {"finalizers": [FINALIZER]}})
    status = {"allocation": allocation(*devices, node=node), "reservedFor": reserved_for(*users)}
    reply = await api.patch(f"{CLAIMS}/{name}/status", {"status": status})
    assert reply.status == 200, reply.body


async def warned(api: ApiClient, name: str, problem: str) -> None:
    """Wait for a warning about a pod whose message contains the problem."""
    path = f"{EVENTS}?fieldSelector=involvedObject.name={name},reason=FailedPrepareDynamicResources"

    def has_problem(reply: Reply) -> bool:
        events = [each for each in reply.body["items"] if problem in each["message"]]
        return bool(events) and events[0]["type"] == "Warning"

    await api.until(path, has_problem)


async def generated(api: ApiClient, name: str) -> str:
    """Name of the claim that was generated for a pod."""
    reply = await api.until(f"{PODS}/{name}", lambda reply: "resourceClaimStatuses" in reply.body["status"])
    return str(reply.body["status"]["resourceClaimStatuses"][0]["resourceClaimName"])


async def test_nodes_publish_their_gpus(api: ApiClient, kubelets: None) -> None:
    [published] = (await api.get(f"{SLICES}?fieldSelector=spec.nodeName=node-00")).body["items"]
    spec = published["spec"]
    assert (spec["driver"], spec["pool"]["name"], spec["pool"]["resourceSliceCount"]) == (
        "gpu.example.com",
        "node-00",
        1,
    )
    [owner] = published["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Node", "node-00")
    first, second = spec["devices"]
    assert (first["name"], second["name"]) == ("gpu-0", "gpu-1")
    assert first["capacity"]["memory"]["value"] == "80Gi"
    attributes = first["attributes"]
    assert attributes["type"] == {"string": "gpu"} and attributes["index"] == {"int": 0}
    assert attributes["driverVersion"] == {"version": "570.86.15"}
    assert attributes["uuid"] != second["attributes"]["uuid"]
    assert attributes["resource.kubernetes.io/pcieRoot"] == second["attributes"]["resource.kubernetes.io/pcieRoot"]
    assert {"productName", "architecture"} <= attributes.keys()


async def test_partitions_share_the_counters_of_their_card(api: ApiClient, kubelets: None) -> None:
    items = (await api.get(f"{SLICES}?fieldSelector=spec.nodeName=node-01")).body["items"]
    shared, devices = (decode_slice(each) for each in sorted(items, key=lambda each: str(each["metadata"]["name"])))
    assert shared.count == devices.count == 2
    [of_card] = shared.shared
    available = dict(of_card.counters)
    whole, *partitions = devices.devices
    assert whole.consumes == shared.shared, "the card leaves nothing to its partitions"
    assert {each.attributes["gpu.example.com/type"] for each in partitions} == {"mig"}
    sizes = [each for each in partitions if each.attributes["gpu.example.com/profile"] == "3g.40gb"]
    for counter, amount in available.items():
        assert sum(dict(each.consumes[0].counters).get(counter, 0) for each in sizes) <= amount, "two halves fit"
    assert len({each.name for each in devices.devices}) == 1 + 7 + 3 + 2 + 1


async def test_nodes_of_an_nvlink_domain_have_one_clique(api: ApiClient, kubelets: None) -> None:
    labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in (await api.get(NODES)).body["items"]}
    cliques = {name: each.get("nvidia.com/gpu.clique") for name, each in labels.items()}
    assert cliques["node-00"] is cliques["node-01"] is None
    assert cliques["node-02"] == cliques["node-03"] is not None


def test_every_four_nodes_are_an_nvlink_domain() -> None:
    cliques = [node.labels["nvidia.com/gpu.clique"] for node in shapes("nvlink:1@0-7", count=8)]
    assert len(set(cliques)) == 2 and cliques[:4] == [cliques[0]] * 4


async def test_slices_are_deleted_with_their_node(api: ApiClient, kubelets: None) -> None:
    await api.delete(f"{NODES}/node-01")
    await api.until(SLICES, lambda reply: "node-01" not in {each["spec"]["nodeName"] for each in reply.body["items"]})
    assert len(await api.names(SLICES)) == 3


async def test_slices_remain_over_restarts_unless_devices_change(
    server: ApiServer, api: ApiClient, tmp_path: Path
) -> None:
    async def published(devices: str) -> list[Any]:
        async with running_kubelets(server, tmp_path, shapes(devices, count=1)):
            items: list[Any] = (await api.get(SLICES)).body["items"]
            return items

    first, again = await published("mig:1@0"), await published("mig:1@0")
    [changed] = await published("gpu:1@0")

    assert first == again
    assert changed["spec"]["pool"] == {"name": "node-00", "generation": 2, "resourceSliceCount": 1}


async def test_a_pod_waits_until_its_claim_is_reserved(api: ApiClient, kubelets: None) -> None:
    await api.created(CLAIMS, claim("a"))
    trainer = await bound(api, "trainer", "node-00", of_claim="a")

    uid = trainer["metadata"]["uid"]
    problem = f"Failed to prepare dynamic resources: pod trainer ({uid}) is not allowed to use ResourceClaim a ("
    await warned(api, "trainer", problem)
    waiting = (await api.until(f"{PODS}/trainer", lambda reply: "containerStatuses" in reply.body["status"])).body
    await allocate(api, "a", "gpu-0", "gpu-1", node="node-00", users=[trainer])
    running = await api.until(f"{PODS}/trainer", is_running)

    assert waiting["status"]["phase"] == "Pending"
    [container] = waiting["status"]["containerStatuses"]
    assert container["state"] == {"waiting": {"reason": "ContainerCreating"}}
    conditions = {each["type"]: each["status"] for each in waiting["status"]["conditions"]}
    assert conditions["PodReadyToStartContainers"] == "False"
    assert running.body["status"]["startTime"] == waiting["status"]["startTime"]


async def test_a_pod_with_a_reserved_claim_starts_at_once(api: ApiClient, kubelets: None) -> None:
    await api.created(TEMPLATES, template("two"))
    trainer = await api.created(
        PODS, pod("trainer", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "two"}])
    )
    named = await api.until(f"{PODS}/trainer", lambda reply: "resourceClaimStatuses" in reply.body["status"])
    name = named.body["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
    await allocate(api, name, "gpu-0", node="node-00", users=[trainer])
    await api.bind("trainer", "node-00")
    await api.until(f"{PODS}/trainer", is_running)
    assert (await api.get(EVENTS)).body["items"] == []


async def test_a_pod_whose_template_is_missing_waits(api: ApiClient, kubelets: None) -> None:
    trainer = await bound(api, "trainer", "node-00", of_template="two")
    await warned(api, "trainer", "pod default/trainer: ResourceClaim not created yet: gpu")
    await api.created(TEMPLATES, template("two"))
    await allocate(api, await generated(api, "trainer"), "gpu-0", node="node-00", users=[trainer])
    await api.until(f"{PODS}/trainer", is_running)


async def test_a_waiting_pod_can_be_deleted(api: ApiClient, kubelets: None) -> None:
    await bound(api, "trainer", "node-00", of_claim="missing")
    await warned(api, "trainer", 'fetch ResourceClaim missing: resourceclaims.resource.k8s.io "missing" not found')
    await api.delete(f"{PODS}/trainer")
    await api.until_gone(f"{PODS}/trainer")


@pytest.mark.parametrize(
    ("node", "devices", "problem"),
    [
        ("node-00", ["gpu-2"], "node node-00 has no device gpu.example.com/node-00/gpu-2"),
        ("node-01", ["gpu-0"], "node node-00 has no device gpu.example.com/node-01/gpu-0"),
    ],
)
async def test_a_device_of_another_node_is_not_prepared(
    api: ApiClient, kubelets: None, node: str, devices: list[str], problem: str
) -> None:
    await api.created(CLAIMS, claim("a"))
    trainer = await bound(api, "trainer", "node-00", of_claim="a")
    await allocate(api, "a", *devices, node=node, users=[trainer])
    await warned(api, "trainer", problem)


@pytest.mark.parametrize(
    ("node", "first", "second", "problem"),
    [
        ("node-00", "gpu-0", "gpu-0", "gpu.example.com/node-00/gpu-0 is prepared for another claim"),
        ("node-01", "gpu-0-mig-3g40gb-0", "gpu-0-mig-1g10gb-3", "more of counter gpu-0/memory-slice-3 than"),
    ],
    ids=["device", "counter"],
)
async def test_a_device_in_use_is_prepared_once_it_is_free(
    api: ApiClient, kubelets: None, node: str, first: str, second: str, problem: str
) -> None:
    pods = []
    for name, device in (("a", first), ("b", second)):
        await api.created(CLAIMS, claim(name))
        pods.append(await bound(api, f"pod-{name}", node, of_claim=name))
        await allocate(api, name, device, node=node, users=[pods[-1]])
        if name == "a":
            await api.until(f"{PODS}/pod-a", is_running)
    await warned(api, "pod-b", problem)

    await api.delete(f"{PODS}/pod-a")

    await api.until(f"{PODS}/pod-b", is_running)


async def test_partitions_of_one_card_are_used_together(api: ApiClient, kubelets: None) -> None:
    for name, device in (("a", "gpu-0-mig-3g40gb-0"), ("b", "gpu-0-mig-3g40gb-4")):
        await api.created(CLAIMS, claim(name))
        made = await bound(api, f"pod-{name}", "node-01", of_claim=name)
        await allocate(api, name, device, node="node-01", users=[made])
    for name in ("pod-a", "pod-b"):
        await api.until(f"{PODS}/{name}", is_running)


async def test_pods_of_one_claim_share_its_devices(api: ApiClient, kubelets: None) -> None:
    await api.created(CLAIMS, claim("shared"))
    await api.created(CLAIMS, claim("next"))
    pods = [await bound(api, name, "node-00", of_claim="shared") for name in ("one", "two")]
    await allocate(api, "shared", "gpu-0", node="node-00", users=pods)
    for name in ("one", "two"):
        await api.until(f"{PODS}/{name}", is_running)
    third = await bound(api, "three", "node-00", of_claim="next")
    await allocate(api, "next", "gpu-0", node="node-00", users=[third])
    await api.delete(f"{PODS}/one")
    await api.until_gone(f"{PODS}/one")
    await warned(api, "three", "is prepared for another claim")
    await api.delete(f"{PODS}/two")
    await api.until(f"{PODS}/three", is_running)


async def test_running_pods_keep_their_devices_over_restarts(server: ApiServer, api: ApiClient, tmp_path: Path) -> None:
    nodes = shapes("gpu:1@0", count=1)
    async with running_kubelets(server, tmp_path, nodes):
        await api.created(CLAIMS, claim("a"))
        first = await bound(api, "z-runs", "node-00", of_claim="a")
        await allocate(api, "a", "gpu-0", node="node-00", users=[first])
        await api.until(f"{PODS}/z-runs", is_running)
    await api.created(CLAIMS, claim("b"))
    second = await bound(api, "a-comes-later", "node-00", of_claim="b")
    await allocate(api, "b", "gpu-0", node="node-00", users=[second])

    async with running_kubelets(server, tmp_path, nodes):
        await warned(api, "a-comes-later", "is prepared for another claim")
    assert is_running(await api.get(f"{PODS}/z-runs"))


async def test_devices_of_other_drivers_are_not_checked(api: ApiClient, kubelets: None) -> None:
    await api.created(CLAIMS, claim("nic"))
    user = await bound(api, "trainer", "node-00", of_claim="nic")
    status = {"allocation": allocation("nic-7", driver="nic.example.com"), "reservedFor": reserved_for(user)}
    await api.patch(f"{CLAIMS}/nic/status", {"status": status})
    await api.until(f"{PODS}/trainer", is_running)
