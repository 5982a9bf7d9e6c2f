"""Simulated kubelets with the embedded API server."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from builders.e2e.local_cluster import running_kubelets
from builders.kube.client import NODES, PODS, ApiClient, Reply, api_client, pod
from muster.localcluster.apiserver import ApiServer, Timing
from muster.localcluster.kubelets import simulated_nodes

SHAPES = simulated_nodes(2, racks=2, cpu="2", memory="4Gi", pods=10, gpus=1)
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    server = ApiServer(allow_faults=True, timing=Timing(orphaned_pod_seconds=0.2))
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[ApiClient]:
    async with api_client(server.url) as client:
        yield client


@pytest.fixture
async def kubelets(server: ApiServer, tmp_path: Path) -> AsyncIterator[None]:
    async with running_kubelets(server, tmp_path, SHAPES):
        yield


def _phase(*phases: str) -> Callable[[Reply], bool]:
    return lambda reply: reply.status == 200 and reply.body["status"]["phase"] in phases


def _annotated(name: str, *, policy: str = "Never", **annotations: str) -> dict[str, Any]:
    marks = {f"muster.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return pod(name, restartPolicy=policy, metadata={"annotations": marks})


async def _bound(api: ApiClient, body: dict[str, Any], node: str = "node-00") -> None:
    await api.created(PODS, body)
    assert (await api.bind(body["metadata"]["name"], node)).status == 201


async def test_nodes_are_registered_ready_with_their_capacity(api: ApiClient, kubelets: None) -> None:
    nodes = (await api.get(NODES)).body["items"]

    assert [node["metadata"]["name"] for node in nodes] == ["node-00", "node-01"]
    first = nodes[0]
    assert first["metadata"]["labels"]["rack"] == "rack-0"
    assert first["metadata"]["labels"]["kubernetes.io/hostname"] == "node-00"
    assert "topology.kubernetes.io/zone" in first["metadata"]["labels"]
    offered = {"cpu": "2", "memory": "4Gi", "pods": "10", "nvidia.com/gpu": "1", "ephemeral-storage": "100Gi"}
    assert first["status"]["allocatable"] == first["status"]["capacity"] == offered
    ready = next(each for each in first["status"]["conditions"] if each["type"] == "Ready")
    assert ready["status"] == "True" and "taints" not in first["spec"]
    assert await api.names(LEASES) == ["node-00", "node-01"]


async def test_a_bound_pod_runs(api: ApiClient, kubelets: None) -> None:
    async with api.watch(f"{PODS}?resourceVersion={(await api.get(PODS)).revision}") as events:
        await _bound(api, pod("a"))
        added, bound, running = await events.next(), await events.next(), await events.next()

    assert [event["type"] for event in (added, bound, running)] == ["ADDED", "MODIFIED", "MODIFIED"]
    status = running["object"]["status"]  # one patch said it all
    assert status["phase"] == "Running" and status["podIP"] and status["startTime"] and status["hostIP"]
    assert {each["type"] for each in status["conditions"] if each["status"] == "True"} == {
        "PodScheduled",
        "Initialized",
        "PodReadyToStartContainers",
        "ContainersReady",
        "Ready",
    }
    [container] = status["containerStatuses"]
    assert container["ready"] and "running" in container["state"]


async def test_pods_have_distinct_addresses(api: ApiClient, kubelets: None) -> None:
    for name in ("a", "b"):
        await _bound(api, pod(name))

    addresses = {(await api.until(f"{PODS}/{name}", _phase("Running"))).body["status"]["podIP"] for name in "ab"}

    assert len(addresses) == 2


async def test_i3_the_kubelet_rejects_pods_that_do_not_fit(api: ApiClient, kubelets: None) -> None:
    await _bound(api, pod("first", requests={"cpu": "1500m"}))
    await _bound(api, pod("second", requests={"cpu": "501m"}))
    await _bound(api, pod("third", requests={"cpu": "500m"}))

    refused = (await api.until(f"{PODS}/second", _phase("Failed"))).body["status"]

    assert refused["reason"] == "OutOfcpu"
    assert refused["message"] == (
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 501, used: 1500, capacity: 2000"
    )
    await api.until(f"{PODS}/third", _phase("Running"))
    events = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=second"
    events_reply = await api.until(events, lambda reply: bool(reply.body["items"]))
    assert events_reply.body["items"][0]["reason"] == "OutOfcpu"


async def test_an_ended_pod_frees_capacity(api: ApiClient, kubelets: None) -> None:
    first = _annotated("first", run_seconds="0")
    first["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    await _bound(api, first)
    await api.until(f"{PODS}/first", _phase("Succeeded"))

    await _bound(api, pod("second", requests={"cpu": "2"}))

    await api.until(f"{PODS}/second", _phase("Running"))


async def test_a_deleted_pod_frees_capacity_at_once(api: ApiClient, kubelets: None) -> None:
    await _bound(api, pod("first", requests={"cpu": "2"}))
    await api.until(f"{PODS}/first", _phase("Running"))

    marked = await api.delete(f"{PODS}/first")
    await api.until_gone(f"{PODS}/first")
    await _bound(api, pod("first", requests={"cpu": "2"}))

    assert marked.body["metadata"]["deletionGracePeriodSeconds"] == 30
    await api.until(f"{PODS}/first", _phase("Running"))


async def test_a_deleted_pod_keeps_its_capacity_while_it_stops(api: ApiClient, kubelets: None) -> None:
    slow = _annotated("slow", stop_seconds="3600")
    slow["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    await _bound(api, slow)
    await api.until(f"{PODS}/slow", _phase("Running"))
    await api.delete(f"{PODS}/slow")
    await _bound(api, pod("second", requests={"cpu": "2"}))

    await api.until(f"{PODS}/second", _phase("Failed"))
    assert (await api.get(f"{PODS}/slow")).body["status"]["phase"] == "Running"


async def test_a_deleted_pod_stops_after_its_time(api: ApiClient, kubelets: None) -> None:
    await _bound(api, _annotated("slow", stop_seconds="0.1"))
    await api.until(f"{PODS}/slow", _phase("Running"))
    await api.delete(f"{PODS}/slow")

    await api.until_gone(f"{PODS}/slow")


async def test_a_deleted_pod_with_finalizers_is_reported_as_killed(api: ApiClient, kubelets: None) -> None:
    """The finalizer stands for the job controller's, which counts the pod."""
    await _bound(api, pod("held", metadata={"finalizers": ["example.com/hold"]}))
    await api.until(f"{PODS}/held", _phase("Running"))
    await api.delete(f"{PODS}/held")
    ended = (await api.until(f"{PODS}/held", _phase("Failed"))).body
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    await api.patch(f"{PODS}/held", {"metadata": {"finalizers": None}})
    await api.until_gone(f"{PODS}/held")


async def test_an_evicted_pod_is_removed_and_charged_to_its_budget(api: ApiClient, kubelets: None) -> None:
    labels = {"labels": {"app": "web"}}
    for name in ("a", "b"):
        await _bound(api, pod(name, metadata=labels))
    spec = {"minAvailable": 1, "selector": {"matchLabels": labels["labels"]}}
    await api.created(BUDGETS, {"metadata": {"name": "web"}, "spec": spec})
    await api.until(f"{BUDGETS}/web", lambda reply: reply.body["status"]["disruptionsAllowed"] == 1)

    evicted = await api.post(f"{PODS}/a/eviction", {"metadata": {"name": "a"}})
    refused = await api.post(f"{PODS}/b/eviction", {"metadata": {"name": "b"}})
    await api.until_gone(f"{PODS}/a")
    await _bound(api, pod("a", metadata=labels))
    await api.until(f"{BUDGETS}/web", lambda reply: reply.body["status"]["disruptionsAllowed"] == 1)

    assert (evicted.status, refused.status) == (201, 429)
    assert (await api.post(f"{PODS}/b/eviction", {"metadata": {"name": "b"}})).status == 201


async def test_pods_succeed_after_their_run_time(api: ApiClient, kubelets: None) -> None:
    await _bound(api, _annotated("a", run_seconds="0.1"))

    ended = (await api.until(f"{PODS}/a", _phase("Succeeded", "Failed"))).body["status"]

    assert ended["phase"] == "Succeeded"
    assert ended["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert {each["status"] for each in ended["conditions"] if each["type"] == "Ready"} == {"False"}


async def test_an_invalid_run_time_means_forever(api: ApiClient, kubelets: None) -> None:
    await _bound(api, _annotated("a", run_seconds="soon"))

    await api.until(f"{PODS}/a", _phase("Running"))


async def test_pods_are_deleted_with_their_node(api: ApiClient, kubelets: None) -> None:
    await _bound(api, pod("a"))
    await _bound(api, pod("b"), node="node-01")
    await api.until(f"{PODS}/a", _phase("Running"))

    await api.delete(f"{NODES}/node-00")

    await api.until_gone(f"{PODS}/a")
    await api.until(f"{PODS}/b", _phase("Running"))
    await api.until_gone(f"{LEASES}/node-00")
    assert await api.names(NODES) == ["node-01"]


async def test_i3_running_pods_keep_capacity_over_restarts(server: ApiServer, api: ApiClient, tmp_path: Path) -> None:
    async with running_kubelets(server, tmp_path, SHAPES):
        await _bound(api, pod("z-runs", requests={"cpu": "2"}))
        before = (await api.until(f"{PODS}/z-runs", _phase("Running"))).body
    await _bound(api, pod("a-comes-later", requests={"cpu": "1"}))

    async with running_kubelets(server, tmp_path, SHAPES):
        refused = await api.until(f"{PODS}/a-comes-later", _phase("Failed"))

    assert refused.body["status"]["reason"] == "OutOfcpu"
    assert (await api.get(f"{PODS}/z-runs")).body == before


async def test_a_node_marked_unknown_reports_ready_again(api: ApiClient, kubelets: None) -> None:
    unknown = [{"type": "Ready", "status": "Unknown"}]
    await api.patch(f"{NODES}/node-00/status", {"status": {"conditions": unknown}})

    def ready(reply: Reply) -> bool:
        conditions = reply.body["status"]["conditions"]
        return ("Ready", "True") in [(each["type"], each["status"]) for each in conditions]

    await api.until(f"{NODES}/node-00", ready)


async def test_leases_are_renewed(server: ApiServer, api: ApiClient, tmp_path: Path) -> None:
    async with running_kubelets(server, tmp_path, SHAPES, renew_seconds=0.1):
        first = (await api.get(f"{LEASES}/node-01")).body["spec"]["renewTime"]
        await api.until(f"{LEASES}/node-01", lambda reply: reply.body["spec"]["renewTime"] > first)


async def test_kubelets_retry_over_faults_of_the_api_server(api: ApiClient, kubelets: None) -> None:
    await api.post("/muster-faults", {"method": "PATCH", "path_suffix": "/status", "count": 3, "status": 500})
    await api.post("/muster-faults/cut-watches", {})
    await _bound(api, pod("a"))

    await api.until(f"{PODS}/a", _phase("Running"))


async def test_pods_of_other_nodes_are_ignored(api: ApiClient, kubelets: None) -> None:
    await api.created(NODES, {"metadata": {"name": "foreign"}})
    await _bound(api, pod("theirs"), node="foreign")
    await _bound(api, pod("ours"))
    await api.until(f"{PODS}/ours", _phase("Running"))

    assert (await api.get(f"{PODS}/theirs")).body["status"]["phase"] == "Pending"
