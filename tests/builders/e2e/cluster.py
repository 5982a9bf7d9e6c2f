"""A running Muster for end-to-end tests, and its state as observed from outside.

Waiting is for changes that the API server, etcd and the coordinator report. The invariants are checked from the first
moment to the last.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Literal

import grpc
import msgspec
import pytest

from builders.e2e.api_requests import refused, sessions_by_credentials, uses
from builders.e2e.faults import Faults
from builders.e2e.invariants import Invariants
from builders.e2e.solve_relay import SolveRelay
from builders.etcd.records import EtcdRecords
from builders.kube.provisioner import Provisioner
from builders.kube.server_features import ApiServer, api_server
from builders.kube.watch import follow_kind
from builders.wait import WAIT_SECONDS, eventually
from muster.cli.gangs import gang_line
from muster.config.settings import PLAIN_TEXT, KubeSettings
from muster.coordinator.v1 import coordinator_pb2, coordinator_pb2_grpc, record_pb2
from muster.kube.session import ApiStatusError, KubeSession, Response
from muster.localcluster.manifests import Manifest, apply_manifests, load_manifests
from muster.localcluster.ports import free_port
from muster.localcluster.stack import SERVICES, Stack
from muster.localcluster.stack_options import StackOptions
from muster.localcluster.up.cluster_view import ClusterView, watch_gangs
from muster.rpc.channel import open_channel

CRDS = Path(__file__).parents[3] / "deploy" / "crds"
CALL_SECONDS = 60.0

_sharing: list["Cluster"] = []
"""Clusters on a real API server: each would schedule the pods of the others."""

JSON = dict[str, Any]
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


class Cluster:
    """The processes, and the current state of pods, nodes, events, gangs and records."""

    def __init__(self, stack: Stack, session: KubeSession, api_server: ApiServer) -> None:
        self.stack, self.session, self.api_server = stack, session, api_server
        self.faults = Faults(session)
        self.pods: dict[tuple[str, str], JSON] = {}
        self.nodes: dict[str, JSON] = {}
        self.events: dict[str, JSON] = {}
        self.view = ClusterView()
        self.solves = SolveRelay(stack.addresses["placement"], self.view.touch)
        self.records = EtcdRecords(stack.etcd_address, self._on_record)
        self.invariants = Invariants(self.records)
        self.on_pod: Callable[[str, JSON], None] | None = None
        """Called with every change of a pod, after the state was updated."""
        self.on_record: Callable[[str, record_pb2.GangRecord | None], None] | None = None
        """Called as soon as a record is observed in etcd: the hook of crash tests."""
        self._tasks: list[asyncio.Task[Any]] = []

    async def begin(self, names: Collection[str] | None = None) -> None:
        """Start all stopped processes. Of clusters that share an API server only this one runs afterwards."""
        for other in _sharing:
            if other is not self:
                await other.stack.unregister_webhooks()
                for name in SERVICES[::-1]:
                    await other.stack.stop_one(name)
        await self.stack.start(names)

    # -- observations

    async def until(self, condition: Callable[[], object], what: str, *, seconds: float = WAIT_SECONDS) -> None:
        """Wait until the condition holds, evaluated at every change. Fails with `what` and the current state."""
        version = -1
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    version = await self.view.newer_than(version)
        except TimeoutError:
            raise AssertionError(f"not within {seconds:g} s: {what}\n{self.described()}") from None

    def described(self) -> str:
        """The current state, for failure messages."""
        lines = [f"  {gang_line(gang)}" for gang in self.gangs.values()]
        pods = (f"  {'/'.join(key)} on {node_of(pod) or '-'}" for key, pod in sorted(self.pods.items())[:40])
        down = [name for name, child in self.stack.children.items() if not child.running]
        failed = [repr(task.exception()) for task in self._tasks if task.done() and not task.cancelled()]
        return "\n".join(["gangs:", *lines, "pods:", *pods, f"down: {down}", f"failed here: {failed}"])

    @property
    def gangs(self) -> dict[str, coordinator_pb2.Gang]:
        """Gangs by id, as the coordinator reports them."""
        return self.view.gangs

    def is_usable(self, node: str) -> bool:
        """Whether the node exists, is ready and has no taints."""
        found = self.nodes.get(node, {"spec": {}, "status": {}})
        conditions = {one["type"]: one["status"] for one in found.get("status", {}).get("conditions") or ()}
        return conditions.get("Ready") == "True" and not found["spec"].get("taints")

    async def explain(self, gang: str) -> coordinator_pb2.ExplainResponse:
        """Call Explain on the coordinator that leads, once one does. Raises AioRpcError."""
        addresses = [self.stack.addresses[replica] for replica in self.stack.replicas_of("coordinator")]
        async with contextlib.AsyncExitStack() as stack:
            channels = [await stack.enter_async_context(open_channel(each, PLAIN_TEXT)) for each in addresses]
            stubs = [coordinator_pb2_grpc.CoordinatorServiceStub(channel) for channel in channels]

            async def explained() -> coordinator_pb2.ExplainResponse | None:
                for stub in stubs:
                    try:
                        return await stub.Explain(coordinator_pb2.ExplainRequest(gang=gang), timeout=CALL_SECONDS)
                    except grpc.aio.AioRpcError as error:
                        if error.code() != grpc.StatusCode.UNAVAILABLE:
                            raise
                return None

            return await eventually(explained, "a coordinator leads", seconds=CALL_SECONDS)

    async def muster(self, *arguments: str) -> str:
        """Run the command line against the coordinator; returns its output."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "muster.cli", *arguments, "--coordinator", self.stack.addresses["coordinator"]),
            env={**os.environ, "COLUMNS": "400"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output = (await asyncio.wait_for(process.communicate(), CALL_SECONDS))[0].decode()
        assert process.returncode == 0, output
        return output

    def events_of(self, namespace: str, names: Collection[str]) -> list[JSON]:
        """Events about objects of these names."""
        return [
            event
            for event in self.events.values()
            if (about := event.get("regarding") or event.get("involvedObject") or {}).get("name") in names
            and about.get("namespace") == namespace
        ]

    @contextlib.contextmanager
    def frozen(self, service: str) -> Iterator[None]:
        """Stop the process with SIGSTOP for the block: it answers nothing and loses nothing."""
        child = self.stack.children[service]
        child.freeze()
        try:
            yield
        finally:
            child.resume()

    # -- actions

    async def call(self, method: Method, path: str, body: JSON | None = None, **options: Any) -> JSON:
        """Send one request to the API. Raises ApiStatusError."""
        response = await self.try_call(method, path, body, **options)
        if response.status >= 300:
            raise ApiStatusError.from_response(response)
        return msgspec.json.decode(response.body) if response.body else {}

    async def try_call(self, method: Method, path: str, body: JSON | None = None, **options: Any) -> Response:
        """Send one request to the API; returns the response whatever its status."""
        content = None if body is None else msgspec.json.encode(body)
        return await self.session.request(method, path, body=content, timeout_seconds=CALL_SECONDS, **options)

    async def apply(self, *objects: JSON) -> None:
        """Create objects."""
        await apply_manifests(self.session, [Manifest(one) for one in objects])

    async def merge(self, path: str, patch: JSON) -> None:
        """Merge-patch an object."""
        await self.call("PATCH", path, patch, content_type="application/merge-patch+json")

    async def check_access(self) -> None:
        """Check that no request of a service was denied."""
        missing = refused(await uses(self.session)) if self.stack.is_embedded else self.faults.refusals.messages
        assert not missing, f"permissions that are missing: {missing}"

    # -- watching

    async def watch(self) -> None:
        """Start watching everything; returns when the current state is known."""
        sources: list[tuple[str, Callable[[str, JSON], None]]] = [
            ("/api/v1/nodes", self._on_node),
            ("/api/v1/pods", self._on_pod),
            ("/apis/events.k8s.io/v1/events", self._on_event),
        ]
        for path, on_change in sources:
            listed = asyncio.Event()
            self._go(follow_kind(self.session, path, on_change, listed))
            await asyncio.wait_for(listed.wait(), CALL_SECONDS)
        self._go(self.records.follow())
        if self.api_server.is_real and self.api_server.has_controllers:
            self._go(Provisioner(self.session).run())
        for replica in self.stack.replicas_of("coordinator"):  # only the leader answers
            self._go(watch_gangs(self.stack.addresses[replica], self.view))

    async def close(self) -> None:
        """Stop watching, and stop all processes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.stack.stop()
        await self.faults.close()
        await self.solves.stop()
        await self.session.close()

    def _go(self, work: "Awaitable[None]") -> None:
        self._tasks.append(asyncio.ensure_future(work))

    def _on_pod(self, change: str, pod: JSON) -> None:
        self.invariants.pod(change, pod)
        self._keep(self.pods, (pod["metadata"]["namespace"], pod["metadata"]["name"]), change, pod)
        if self.on_pod is not None:
            self.on_pod(change, pod)

    def _on_node(self, change: str, node: JSON) -> None:
        if change != "DELETED":
            self.invariants.node(change, node)
        self._keep(self.nodes, node["metadata"]["name"], change, node)

    def _on_event(self, change: str, event: JSON) -> None:
        self._keep(self.events, event["metadata"]["uid"], change, event)

    def _on_record(self, gang: str, record: record_pb2.GangRecord | None) -> None:
        if self.on_record is not None:
            self.on_record(gang, record)
        self.view.touch()

    def _keep(self, kept: dict[Any, JSON], key: Any, change: str, item: JSON) -> None:
        if change == "DELETED":
            kept.pop(key, None)
        else:
            kept[key] = item
        self.view.touch()


def node_of(pod: JSON) -> str:
    """The node of a pod; "" if it is not bound."""
    return str(pod["spec"].get("nodeName", ""))


def real_kubeconfig(config: pytest.Config) -> Path | None:
    """Kubeconfig of the API server that --cluster real requires; None: the embedded one."""
    if config.getoption("--cluster") != "real":
        return None
    kubeconfig = os.environ.get("KUBECONFIG", "")
    if not Path(kubeconfig).is_file():
        raise pytest.UsageError("--cluster real needs KUBECONFIG to name a file")
    return Path(kubeconfig)


@contextlib.asynccontextmanager
async def running_cluster(
    directory: Path, *, kubeconfig: Path | None = None, start: tuple[str, ...] | None = None, **options: Any
) -> AsyncIterator[Cluster]:
    """A cluster without nodes. `start`: processes that run at first."""
    relay = free_port()
    options.setdefault("durable", False)
    stack = Stack(
        StackOptions(
            directory=directory,
            kubeconfig=kubeconfig,
            services_server=f"http://127.0.0.1:{relay}",
            kubelets=False,
            **options,
        )
    )
    base = [name for name in ("api-server", *stack.etcd_addresses) if name in stack.children]
    cluster = None
    try:
        await stack.start(base)
        session = await KubeSession.connect(KubeSettings(kubeconfig=stack.kubeconfig), connections=256)
        cluster = Cluster(stack, session, await api_server(session, is_real=kubeconfig is not None))
        await apply_manifests(cluster.session, load_manifests(CRDS))
        await cluster.watch()
        cluster.faults.identities = await sessions_by_credentials(stack, session)
        await cluster.faults.start(relay)
        await cluster.solves.start()
        if len(stack.replicas_of("placement")) == 1:
            for replica in stack.replicas_of("coordinator"):
                cluster.solves.lead_through(stack.children[replica].argv)
        if kubeconfig is not None:
            _sharing.append(cluster)
        await cluster.begin(start)
        yield cluster
        await cluster.invariants.check()
        await cluster.check_access()
    finally:
        if cluster in _sharing:
            _sharing.remove(cluster)
        await (cluster.close() if cluster else stack.stop())
