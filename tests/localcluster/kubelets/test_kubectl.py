"""kubectl, any version from 1.20 on, with the API server and the kubelets."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from builders.e2e.local_cluster import running_kubelets
from builders.kube.client import PODS, ApiClient, api_client
from builders.wait import WAIT_SECONDS
from muster.localcluster.apiserver import ApiServer
from muster.localcluster.kubelets import simulated_nodes

CRDS = Path(__file__).parents[3] / "deploy" / "crds"

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  nodeName: node-01
  containers:
  - {name: main, image: "registry.k8s.io/pause:3.10", resources: {requests: {cpu: 100m}}}
"""

GANG = """
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: mpi}
spec: {minMember: 3}
"""


class Kubectl:
    """kubectl with its own home directory, without cached discovery of other servers."""

    def __init__(self, home: Path) -> None:
        path = shutil.which("kubectl")
        assert path, "kubectl is not installed: apt-get install kubernetes-client"
        self._path = path
        self._environment = {**os.environ, "HOME": str(home), "KUBECONFIG": str(home / "kubeconfig")}

    async def __call__(self, *arguments: str, stdin: str = "", fails: bool = False) -> str:
        """Standard output; standard error of a command that must fail."""
        process = await self.start(*arguments)
        async with asyncio.timeout(60):
            out, err = await process.communicate(stdin.encode())
        assert (process.returncode != 0) is fails, f"kubectl {arguments}: {out.decode()}{err.decode()}"
        return (err if fails else out).decode()

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            self._path, *arguments, stdin=pipe, stdout=pipe, stderr=pipe, env=self._environment
        )


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    server = ApiServer()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def kubectl(server: ApiServer, tmp_path: Path) -> AsyncIterator[Kubectl]:
    async with running_kubelets(server, tmp_path, simulated_nodes(2, racks=2)):
        yield Kubectl(tmp_path)


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[ApiClient]:
    async with api_client(server.url) as client:
        yield client


async def test_lifecycle_of_a_pod_with_kubectl(kubectl: Kubectl) -> None:
    created = await kubectl("apply", "-f", "-", stdin=POD)
    await kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=20s")
    wide = (await kubectl("get", "pods", "-o", "wide")).splitlines()
    again = await kubectl("apply", "-f", "-", stdin=POD)
    changed = await kubectl("apply", "-f", "-", stdin=POD.replace("app: web", "app: other"))
    described = await kubectl("describe", "pod", "web")
    logs = await kubectl("logs", "web", fails=True)
    deleted = await kubectl("delete", "pod", "web")

    assert created == "pod/web created\n"
    assert wide[0].split()[:3] == ["NAME", "READY", "STATUS"]
    assert wide[1].split()[:3] == ["web", "1/1", "Running"] and "node-01" in wide[1]
    assert again == "pod/web unchanged\n"
    assert changed == "pod/web configured\n"
    assert "app=other" in described and "node-01" in described
    assert "simulated" in logs
    assert 'pod "web" deleted' in deleted


async def test_changing_objects_with_kubectl(kubectl: Kubectl, api: ApiClient) -> None:
    await kubectl("create", "-f", "-", stdin=POD)
    await kubectl("label", "pod", "web", "tier=front")
    await kubectl("annotate", "pod", "web", "note=yes")
    await kubectl("patch", "pod", "web", "-p", '{"metadata":{"labels":{"app":null}}}')
    selected = await kubectl("get", "pods", "-l", "tier=front", "-o", "name")
    sorted_by = await kubectl("get", "nodes", "--sort-by=.metadata.name")

    metadata = (await api.get(f"{PODS}/web")).body["metadata"]
    assert metadata["labels"] == {"tier": "front"}
    assert metadata["annotations"]["note"] == "yes"
    assert selected == "pod/web\n"
    assert [line.split()[0] for line in sorted_by.splitlines()] == ["NAME", "node-00", "node-01"]


async def test_kubectl_prints_errors(kubectl: Kubectl) -> None:
    twice = POD + "---" + POD
    bad_name = await kubectl("apply", "-f", "-", stdin=POD.replace("name: web", "name: Web_1"), fails=True)
    conflict = await kubectl("create", "-f", "-", stdin=twice, fails=True)
    missing = await kubectl("get", "pod", "nowhere", fails=True)

    assert "a lowercase RFC 1123 subdomain" in bad_name
    assert "AlreadyExists" in conflict
    assert 'pods "nowhere" not found' in missing


async def test_nodes_are_cordoned_and_drained(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=POD)
    await kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=20s")

    await kubectl("cordon", "node-00")
    cordoned = (await kubectl("get", "nodes")).splitlines()
    await kubectl("drain", "node-01", "--force")
    described = await kubectl("describe", "node", "node-01")
    await kubectl("uncordon", "node-00")
    back = (await kubectl("get", "node", "node-00")).splitlines()

    assert "Ready,SchedulingDisabled" in cordoned[1] and "SchedulingDisabled" not in cordoned[2]
    assert "node.kubernetes.io/unschedulable:NoSchedule" in described
    assert "SchedulingDisabled" not in back[1]
    assert (await kubectl("get", "pods", "-o", "name")) == ""


async def test_custom_kinds_with_kubectl(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", f"{CRDS}/")  # it is a link, which kubectl follows only so
    await kubectl("wait", "--for=condition=Established", "crd/podgroups.scheduling.x-k8s.io", "--timeout=20s")
    created = await kubectl("apply", "-f", "-", stdin=GANG)
    again = await kubectl("apply", "-f", "-", stdin=GANG.replace("3", "4"))
    table = (await kubectl("get", "podgroups.scheduling.x-k8s.io")).splitlines()
    refused = await kubectl("apply", "-f", "-", stdin=GANG.replace("minMember: 3", "minMember: many"), fails=True)

    assert created == "podgroup.scheduling.x-k8s.io/mpi created\n"
    assert again == "podgroup.scheduling.x-k8s.io/mpi configured\n"
    assert table[0].split()[0] == "NAME" and table[1].split()[0] == "mpi" and "4" in table[1].split()
    assert "must be of type integer" in refused


async def test_objects_created_from_flags(kubectl: Kubectl) -> None:
    await kubectl("create", "namespace", "team")
    await kubectl("create", "configmap", "settings", "--from-literal=a=b", "-n", "team")
    await kubectl("create", "priorityclass", "high", "--value=1000")
    listed = await kubectl("get", "configmap,priorityclass", "-n", "team", "-o", "name")
    await kubectl("delete", "namespace", "team")

    assert "configmap/settings" in listed and "priorityclass.scheduling.k8s.io/high" in listed
    assert "team" not in await kubectl("get", "namespaces", "-o", "name")


async def test_watching(kubectl: Kubectl, api: ApiClient) -> None:
    watching = await kubectl.start("get", "pods", "-w", "--no-headers")
    try:
        assert watching.stdout is not None
        await kubectl("apply", "-f", "-", stdin=POD)
        async with asyncio.timeout(WAIT_SECONDS):
            seen = b""
            while b"Running" not in seen:
                seen += await watching.stdout.readline()
    finally:
        watching.kill()
        await watching.wait()

    assert seen.splitlines()[0].split()[0] == b"web"
