"""Controllers of an incomplete gang, read with kubectl from an API server."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from builders.kube.client import ApiClient, api_client
from muster.cli.discovery import Kubectl
from muster.cli.missing_members import missing_members
from muster.coordinator.v1 import coordinator_pb2 as pb
from muster.localcluster.apiserver import ApiServer

Object = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
OPEN = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiClient]:
    """An API server, for which there is a kubeconfig."""
    assert shutil.which("kubectl"), "kubectl is not installed: apt-get install kubernetes-client"
    server = ApiServer()
    await server.start()
    server.write_kubeconfig(tmp_path / "config")
    async with api_client(server.url) as client:
        yield client
    await server.stop()


async def define(api: ApiClient, kind: str, plural: str, group: str, version: str) -> None:
    """Serve a kind with an open schema."""
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    versions = [{"name": version, "served": True, "storage": True, "schema": OPEN}]
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": versions},
    }
    await api.created("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
    await api.until(f"/apis/{group}/{version}/namespaces/default/{plural}", lambda reply: reply.status == 200)


async def create(
    api: ApiClient, api_version: str, kind: str, plural: str, name: str, spec: Object, owner: Object | None = None
) -> Object:
    """Create a controller, or an object of one; returns it as stored."""
    metadata: Object = {"name": name, **({"ownerReferences": [reference(owner)]} if owner else {})}
    body = {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
    prefix = "/api" if api_version == "v1" else "/apis"
    created: Object = await api.created(f"{prefix}/{api_version}/namespaces/default/{plural}", body)
    return {**created, "apiVersion": api_version, "kind": kind}


def reference(owner: Object) -> Object:
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


async def member(api: ApiClient, name: str, owner: Object) -> None:
    spec = {"schedulerName": "muster", "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10"}]}
    await create(api, "v1", "Pod", "pods", name, spec, owner)


async def asked(
    tmp_path: Path, *pods: str, minimum: int = 4, dialect: str = "lightweight", reason: str = ""
) -> list[str]:
    """The lines that `kubectl muster explain` adds for a gang of these pods."""
    gang = pb.Gang(
        id=f"{dialect}/default/g",
        dialect=dialect,
        namespace="default",
        name="g",
        phase=pb.PHASE_GATHERING,
        minimum=minimum,
        members=len(pods),
        reason=reason,
    )
    answer = pb.ExplainResponse(gang=gang, members=[pb.Member(pod=f"default/{pod}", state="pending") for pod in pods])
    kubectl = Kubectl(("--kubeconfig", str(tmp_path / "config")))
    return await asyncio.to_thread(missing_members, kubectl, answer)


def stateful_set(**spec: Any) -> Object:
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10"}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    labels = {"serviceName": "s", "selector": {"matchLabels": {"a": "b"}}, "template": template}
    return {"replicas": 4, "podManagementPolicy": "Parallel", **labels, **spec}


async def test_controllers_are_followed_from_a_member_to_the_topmost(api: ApiClient, tmp_path: Path) -> None:
    group, plural = "leaderworkerset.x-k8s.io/v1", "leaderworkersets"
    await define(api, "LeaderWorkerSet", plural, "leaderworkerset.x-k8s.io", "v1")
    spec = {"replicas": 1, "startupPolicy": "LeaderReady", "leaderWorkerTemplate": {"size": 4}}
    top = await create(api, group, "LeaderWorkerSet", plural, "vllm", spec)
    leaders = await create(api, "apps/v1", "StatefulSet", "statefulsets", "vllm", stateful_set(replicas=1), top)
    await member(api, "vllm-0", leaders)
    (reason,) = await asked(tmp_path, "vllm-0")
    assert reason.startswith("LeaderWorkerSet default/vllm creates a group's workers only after its leader is ready")
    assert await asked(tmp_path, "vllm-0", minimum=1) == [], "a complete gang misses no member"


async def test_a_gang_without_pods_is_found_by_the_controller_of_its_pod_group(api: ApiClient, tmp_path: Path) -> None:
    await define(api, "MPIJob", "mpijobs", "kubeflow.org", "v2beta1")
    await define(api, "PodGroup", "podgroups", "scheduling.x-k8s.io", "v1alpha1")
    spec = {"launcherCreationPolicy": "WaitForWorkersReady", "mpiReplicaSpecs": {"Worker": {"replicas": 3}}}
    job = await create(api, "kubeflow.org/v2beta1", "MPIJob", "mpijobs", "pi", spec)
    await create(api, "scheduling.x-k8s.io/v1alpha1", "PodGroup", "podgroups", "g", {"minMember": 4}, job)
    (reason,) = await asked(tmp_path, dialect="coscheduling")
    assert "set runPolicy.schedulingPolicy.minAvailable: 3" in reason


async def test_a_quota_is_quoted_from_the_controllers_event(api: ApiClient, tmp_path: Path) -> None:
    controller = await create(api, "apps/v1", "StatefulSet", "statefulsets", "db", stateful_set())
    await member(api, "db-0", controller)
    message = 'create Pod db-1 in StatefulSet db failed error: pods "db-1" is forbidden: exceeded quota: team'
    involved = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "namespace": "default",
        "name": "db",
        "uid": controller["metadata"]["uid"],
    }
    event = {
        "metadata": {"name": "db.1"},
        "involvedObject": involved,
        "reason": "FailedCreate",
        "type": "Warning",
        "message": message,
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    await api.created(EVENTS, {"apiVersion": "v1", "kind": "Event", **event})
    (reason,) = await asked(tmp_path, "db-0")
    assert reason.startswith(f"StatefulSet default/db cannot create pods: {message}; raise the ResourceQuota")
    why = "gang default/g is pending: 1 of 4 members exist; its controller cannot create more pods: StatefulSet db: no"
    assert await asked(tmp_path, "db-0", reason=why) == [], "the gang's reason says it already"


async def test_an_unknown_kind_is_a_hint(api: ApiClient, tmp_path: Path) -> None:
    await define(api, "Flow", "flows", "example.com", "v1")
    unknown = await create(api, "example.com/v1", "Flow", "flows", "f", {})
    await member(api, "f-0", {**unknown, "apiVersion": "example.com/v9", "kind": "Stream"})
    (hint,) = await asked(tmp_path, "f-0")
    assert hint.startswith("Stream default/f, which creates its pods, cannot be read: ")
    assert await asked(tmp_path, "gone") == []


async def test_without_kubectl_there_is_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert await asked(tmp_path, "f-0") == ["its controllers were not read: kubectl is not installed"]


async def test_the_name_of_an_owner_is_no_option_of_kubectl(api: ApiClient, tmp_path: Path) -> None:
    calls: list[asyncio.StreamWriter] = []
    other = await asyncio.start_server(lambda _reader, writer: calls.append(writer), "127.0.0.1", 0)
    option = f"--server=http://127.0.0.1:{other.sockets[0].getsockname()[1]}"
    for number, (kind, name) in enumerate([("Unknown", option), (option, "a")]):
        owner: Object = {"apiVersion": "batch/v1", "kind": kind, "metadata": {"name": name, "uid": f"u{number}"}}
        await member(api, f"pod-{number}", owner)
    told = await asked(tmp_path, "pod-0", "pod-1")
    other.close()
    assert not calls
    assert len(told) == 2
    assert all("cannot be read" in each for each in told)


async def test_what_a_terminal_would_obey_is_escaped(api: ApiClient, tmp_path: Path) -> None:
    owner: Object = {"apiVersion": "batch/v1", "kind": "Unknown", "metadata": {"name": "a\x1b[2Jb", "uid": "u"}}
    await member(api, "pod", owner)
    (told,) = await asked(tmp_path, "pod")
    assert told.isprintable()
    assert r"a\x1b[2Jb" in told


async def test_a_gang_whose_pods_exist_and_are_gated_misses_no_member(api: ApiClient, tmp_path: Path) -> None:
    spec = stateful_set(podManagementPolicy="OrderedReady")
    await member(api, "web-0", await create(api, "apps/v1", "StatefulSet", "statefulsets", "web", spec))
    gang = pb.Gang(id="lightweight/default/g", namespace="default", phase=pb.PHASE_GATHERING, minimum=2, members=0)
    answer = pb.ExplainResponse(gang=gang)
    for number in range(2):
        answer.members.add(pod=f"default/web-{number}", state="gated")
    kubectl = Kubectl(("--kubeconfig", str(tmp_path / "config")))
    assert await asyncio.to_thread(missing_members, kubectl, answer) == []
    answer.members[1].state = "deleting"
    assert await asyncio.to_thread(missing_members, kubectl, answer)
