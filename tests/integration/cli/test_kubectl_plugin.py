"""`kubectl muster` asks Muster in the cluster that kubectl talks to, whatever the way there."""

import json
import os
import shutil
import sys
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from builders.clusterstate.stream import ClusterStream, serving
from builders.core.objects import node
from builders.e2e.kubectl_plugin import Ran, kubectl_muster, program
from builders.kube.client import ApiClient, api_client
from muster.cli.endpoints import Endpoints
from muster.coordinator.v1 import coordinator_pb2 as pb
from muster.coordinator.v1 import coordinator_pb2_grpc
from muster.gangs.facts import Batch
from muster.localcluster.apiserver import ApiServer
from muster.topology.trees import flat_tree

KUBE_PUBLIC = "/api/v1/namespaces/kube-public/configmaps"
RESNET = pb.Gang(
    id="native/ml/resnet",
    dialect="native",
    namespace="ml",
    name="resnet",
    phase=pb.PHASE_QUEUED,
    minimum=8,
    trace_id="a" * 32,
    terms=["schedulingPolicy.gang.minCount: 8 (PodGroup ml/resnet)"],
)
BERT = pb.Gang(
    id="native/default/bert", dialect="native", namespace="default", name="bert", phase=pb.PHASE_SATISFIED, members=2
)


class Coordinator(coordinator_pb2_grpc.CoordinatorServiceServicer):
    """One of two; only one of them leads."""

    def __init__(self, *, leads: bool) -> None:
        self.leads = leads

    async def List(self, request: pb.ListRequest, context: Any) -> pb.ListResponse:  # noqa: N802
        if not self.leads:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this replica does not lead")
        return pb.ListResponse(gangs=[gang for gang in (RESNET, BERT) if request.namespace in ("", gang.namespace)])

    async def Leader(self, request: pb.LeaderRequest, context: Any) -> pb.LeaderResponse:  # noqa: N802
        return pb.LeaderResponse()

    async def Explain(self, request: pb.ExplainRequest, context: Any) -> pb.ExplainResponse:  # noqa: N802
        known = {"ml/resnet": RESNET, "default/bert": BERT}
        if request.gang not in known:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such gang")
        return pb.ExplainResponse(gang=known[request.gang])

    async def Watch(self, request: pb.WatchRequest, context: Any) -> AsyncIterator[pb.WatchResponse]:  # noqa: N802
        yield pb.WatchResponse(gangs=[RESNET], synced=True)

    async def Records(  # noqa: N802
        self, request: pb.RecordsRequest, context: Any
    ) -> AsyncIterator[pb.RecordsResponse]:
        yield pb.RecordsResponse()


async def served(*, leads: bool) -> tuple[Any, str]:
    server = grpc.aio.server()
    coordinator_pb2_grpc.add_CoordinatorServiceServicer_to_server(Coordinator(leads=leads), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, f"127.0.0.1:{port}"


@pytest.fixture
async def leader() -> AsyncIterator[str]:
    server, address = await served(leads=True)
    yield address
    await server.stop(None)


@pytest.fixture
async def standby() -> AsyncIterator[str]:
    server, address = await served(leads=False)
    yield address
    await server.stop(None)


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


def names(ran: Ran) -> list[str]:
    assert ran.code == 0, ran.err
    return [gang["name"] for gang in json.loads(ran.out)["gangs"]]


class TestPublishedAddresses:
    async def test_the_cluster_says_where_it_listens(self, api: ApiClient, tmp_path: Path, leader: str) -> None:
        endpoints = Endpoints(1, "", "", "127.0.0.1:1", "", "", leader)
        await api.created(KUBE_PUBLIC, endpoints.config_map())
        config = str(tmp_path / "config")
        assert names(await kubectl_muster(tmp_path, "gangs", "-A", "-o", "json", "--kubeconfig", config)) == [
            "resnet",
            "bert",
        ]
        assert names(await kubectl_muster(tmp_path, f"--kubeconfig={config}", "gangs", "-o", "json")) == ["bert"]
        assert names(await kubectl_muster(tmp_path, "-n", "ml", "gangs", "-o", "json", KUBECONFIG=config)) == ["resnet"]

    async def test_a_gang_is_looked_for_in_the_namespace(self, api: ApiClient, tmp_path: Path, leader: str) -> None:
        await api.created(KUBE_PUBLIC, Endpoints(1, "", "", "127.0.0.1:1", "", "", leader).config_map())
        config = str(tmp_path / "config")
        ran = await kubectl_muster(tmp_path, "explain", "resnet", "-n", "ml", KUBECONFIG=config)
        assert ran.code == 0, ran.err
        assert "declared by  native" in ran.out
        assert "schedulingPolicy.gang.minCount: 8 (PodGroup ml/resnet)" in ran.out
        assert (await kubectl_muster(tmp_path, "explain", "resnet", KUBECONFIG=config)).code == 1

    async def test_the_trace_of_a_real_cluster_is_elsewhere_and_its_id_is_told(
        self, api: ApiClient, tmp_path: Path, leader: str
    ) -> None:
        await api.created(KUBE_PUBLIC, Endpoints(1, "", "", "127.0.0.1:1", "", "", leader).config_map())
        ran = await kubectl_muster(tmp_path, "trace", "ml/resnet", KUBECONFIG=str(tmp_path / "config"))
        assert ran.code == 1
        assert f"look for trace {RESNET.trace_id} in the tracing backend" in ran.err

    async def test_no_trace_is_promised_where_none_is_exported(
        self, api: ApiClient, tmp_path: Path, leader: str
    ) -> None:
        await api.created(KUBE_PUBLIC, Endpoints(1, "", "", "127.0.0.1:1", "", "", leader).config_map())
        ran = await kubectl_muster(tmp_path, "trace", "bert", KUBECONFIG=str(tmp_path / "config"))
        assert ran.code == 1
        assert "default/bert has no trace: this cluster exports none, or its sampler left this gang out" in ran.err

    async def test_trees_are_asked_of_cluster_state(self, api: ApiClient, tmp_path: Path) -> None:
        stream = ClusterStream()
        stream.opens_with(Batch(trees=(flat_tree(),)), {})
        async with serving(stream) as address:
            await api.created(KUBE_PUBLIC, Endpoints(1, "", "", address, "", "", "127.0.0.1:1").config_map())
            ran = await kubectl_muster(tmp_path, "topology", "-o", "json", KUBECONFIG=str(tmp_path / "config"))
        assert [tree["name"] for tree in json.loads(ran.out)["trees"]] == ["flat"]


PAIR = """
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata:
    name: pair-0
    labels: &gang
      pod-group.scheduling.sigs.k8s.io/name: pair
      pod-group.scheduling.sigs.k8s.io/min-available: "2"
  spec: {schedulerName: muster, containers: [{name: main, image: x, resources: {requests: {cpu: "1"}}}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: pair-1, labels: *gang}
  spec: {schedulerName: muster, containers: [{name: main, image: x, resources: {requests: {cpu: "1"}}}]}
"""


class TestWhatIf:
    """Played on this machine, from what the services in the cluster know."""

    async def ran(self, api: ApiClient, directory: Path, leader: str, *arguments: str) -> Ran:
        stream = ClusterStream()
        stream.opens_with(Batch(nodes=(node("falcon", 4),), trees=(flat_tree(),)), {})
        async with serving(stream) as address:
            await api.created(KUBE_PUBLIC, Endpoints(1, "", "", address, "", "", leader).config_map())
            return await kubectl_muster(directory, *arguments, KUBECONFIG=str(directory / "config"))

    async def test_pods_would_start_on_the_node(self, api: ApiClient, tmp_path: Path, leader: str) -> None:
        (tmp_path / "pair.yaml").write_text(PAIR)

        ran = await self.ran(api, tmp_path, leader, "whatif", "-f", "pair.yaml", "-n", "ml", "-o", "json")

        assert ran.code == 0, ran.err
        places = {"node": "falcon"}
        answer = json.loads(ran.out)
        assert {pod: {"node": place["node"]} for pod, place in answer["pods"].items()} == {
            "ml/pair-0": places,
            "ml/pair-1": places,
        }

    async def test_a_snapshot_may_be_redacted(self, api: ApiClient, tmp_path: Path, leader: str) -> None:
        ran = await self.ran(api, tmp_path, leader, "snapshot", "cluster.zip", "--redact")

        assert ran.code == 0, ran.err
        assert ran.out == "cluster.zip: 1 nodes, 0 pods, 0 records\n"
        with zipfile.ZipFile(tmp_path / "cluster.zip") as archive:
            assert not any(b"falcon" in archive.read(each) for each in archive.namelist())

    async def test_the_queue_has_the_gangs_that_wait(self, api: ApiClient, tmp_path: Path, leader: str) -> None:
        ran = await self.ran(api, tmp_path, leader, "queue", "-A", "-o", "json")

        assert names(ran) == ["resnet"]


FAKE = """#!{python}
import os, sys, time
arguments = sys.argv[1:]
if arguments[0] == "muster":
    os.execvp("kubectl-muster", ["kubectl-muster", *arguments[1:]])
print(*arguments, file=open({log!r}, "a"))
if arguments[:2] == ["--context", "prod"]:
    arguments = arguments[2:]
if arguments[:2] == ["get", "pods"]:
    print({pods!r})
elif arguments[0] == "port-forward":
    pod = arguments[-2]
    address = {forwards!r}.get(pod)
    if address is None:
        sys.exit("error: pod is gone")
    print(f"Forwarding from {{address}} -> 7002", flush=True)
    time.sleep(60)
else:
    sys.exit("Error from server (NotFound)")
"""


class TestPortForwarding:
    """kubectl itself is played by a program: the local API server forwards no ports."""

    async def ran(self, tmp_path: Path, forwards: dict[str, str], *arguments: str, pods: str | None = None) -> Ran:
        listed = "\n".join(forwards) if pods is None else pods
        text = FAKE.format(python=sys.executable, log=str(tmp_path / "log"), pods=listed, forwards=forwards)
        fake = program(tmp_path / "fake" / "kubectl", text).parent
        plugin = tmp_path / "bin"
        path = os.pathsep.join((str(fake), str(plugin), os.environ["PATH"]))
        return await kubectl_muster(tmp_path, *arguments, PATH=path)

    async def test_the_replica_that_leads_is_found_and_kubectl_gets_its_options(
        self, tmp_path: Path, leader: str, standby: str
    ) -> None:
        forwards = {"pod/coordinator-0": standby, "pod/coordinator-1": leader}
        ran = await self.ran(tmp_path, forwards, "gangs", "-A", "-o", "json", "--context", "prod")
        assert names(ran) == ["resnet", "bert"]
        calls = (tmp_path / "log").read_text().splitlines()
        assert all(call.startswith("--context prod ") for call in calls)
        assert any("-n muster-system --address 127.0.0.1 pod/coordinator-1 :7002" in call for call in calls)

    async def test_muster_may_run_in_another_namespace(self, tmp_path: Path, leader: str) -> None:
        await self.ran(tmp_path, {"pod/c": leader}, "gangs", "-A", "--muster-namespace", "scheduling")
        assert "-n scheduling" in (tmp_path / "log").read_text()

    async def test_a_node_pool_has_services_of_its_own(self, tmp_path: Path, leader: str) -> None:
        await self.ran(tmp_path, {"pod/c": leader}, "gangs", "-A", "--pool", "train")
        assert "app.kubernetes.io/component=coordinator-train" in (tmp_path / "log").read_text()

    async def test_without_pods_it_says_what_to_do(self, tmp_path: Path) -> None:
        ran = await self.ran(tmp_path, {}, "gangs", "-A")
        assert ran.code == 1
        assert "no pod in namespace muster-system runs Muster's coordinator" in ran.err
        assert "--muster-namespace" in ran.err

    async def test_a_pod_that_cannot_be_forwarded_to_is_told(self, tmp_path: Path) -> None:
        ran = await self.ran(tmp_path, {}, "gangs", "-A", pods="pod/gone")
        assert ran.code == 1
        assert "kubectl cannot forward to pod/gone: error: pod is gone" in ran.err

    async def test_an_option_without_its_value_is_told(self, tmp_path: Path) -> None:
        ran = await self.ran(tmp_path, {}, "gangs", "--context")
        assert (ran.code, "--context needs a value" in ran.err) == (2, True)
