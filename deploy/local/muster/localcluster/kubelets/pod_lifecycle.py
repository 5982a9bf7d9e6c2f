"""Lifecycle of pods on simulated nodes: admission, running, end, deletion."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import structlog

from muster.kube.api_resources import NODES
from muster.kube.informer import Informer
from muster.kube.node_facts import node_facts
from muster.kube.object_changes import ObjectChanges, Removed
from muster.kube.objects import Node
from muster.kube.pod_class import read_class
from muster.kube.session import KubeSession
from muster.localcluster.apiserver.clock import now_text, parse_time
from muster.localcluster.kubelets import pod_status
from muster.localcluster.kubelets.admission import NodeCapacity
from muster.localcluster.kubelets.api_calls import STRATEGIC_MERGE, Calls
from muster.localcluster.kubelets.devices.preparation import ClaimPreparation
from muster.localcluster.kubelets.heartbeats import Heartbeats
from muster.localcluster.kubelets.pod_types import PODS, DeleteOptions, RunPod
from muster.localcluster.kubelets.simulated_nodes import SimulatedNode

_JSON: Final = "application/json"
_KILLED: Final = 137
"""Exit code of killed containers (SIGKILL)."""

_log: Final = structlog.get_logger(__name__)


class _RunningPod:
    """Running pod."""

    __slots__ = ("address", "pod", "started", "timer")

    def __init__(self, pod: RunPod, address: str) -> None:
        self.pod, self.address = pod, address
        self.started = now_text()
        self.timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


class Kubelets:
    """Kubelets of simulated nodes. `renew_seconds`: interval of lease renewals."""

    def __init__(self, session: KubeSession, nodes: Sequence[SimulatedNode], *, renew_seconds: float = 10.0) -> None:
        self._nodes_by_name = {node.name: node for node in nodes}
        self._calls = Calls(session)
        self._heartbeats = Heartbeats(session, nodes, renew_seconds)
        self._pods = Informer(session, PODS, self._pods_changed)
        self._nodes: Informer[Node] = Informer(session, NODES, self._nodes_changed)
        self._claims = ClaimPreparation(session, nodes, self._report_waiting)
        self._capacities: dict[str, NodeCapacity] = {}
        self._node_names: dict[str, str] = {}  # by uid
        self._running: dict[str, _RunningPod] = {}  # by pod uid
        self._finished: set[str] = set()  # uids of pods that were rejected, have ended or are being deleted
        self._stopping: set[str] = set()  # uids of deleted pods whose containers still run
        self._removed: set[str] = set()  # uids of pods whose final deletion was requested
        self._first_list: list[Any] | None = []  # pods of the first list, until it is complete
        self._addresses = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Register the nodes and start their kubelets."""
        await self._heartbeats.register()
        self._spawn(self._nodes.run())
        self._spawn(self._claims.run())
        await self._nodes.complete.wait()  # admission needs the nodes
        await self._claims.complete.wait()
        self._spawn(self._calls.run())
        self._spawn(self._pods.run())
        self._spawn(self._heartbeats.run(lambda name: name in self._capacities))

    async def stop(self) -> None:
        """Stop at once; leave pods and nodes in the API unchanged."""
        for running_pod in self._running.values():
            running_pod.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def run(self) -> None:
        """Start, and run until cancelled or a task fails."""
        await self.start()
        try:
            await asyncio.gather(*self._tasks)
        finally:
            await self.stop()

    def _nodes_changed(self, changes: ObjectChanges[Node]) -> None:
        for item in changes.items:
            if isinstance(item, Removed):
                self._node_removed(self._node_names.pop(item.uid, ""))
            elif item.metadata.name in self._nodes_by_name:
                self._node_changed(item)

    def _node_changed(self, node: Node) -> None:
        name, facts = node.metadata.name, node_facts(node)
        self._node_names[node.metadata.uid] = name
        if (capacity := self._capacities.get(name)) is None:
            self._capacities[name] = NodeCapacity(facts)
        else:
            capacity.update(facts)
        if not facts.ready:
            self._spawn(self._heartbeats.report_ready(name))

    def _node_removed(self, name: str) -> None:
        """Stop the kubelet of a deleted Node; the API server's controllers delete its pods."""
        if self._capacities.pop(name, None) is None:
            return
        _log.info("node_removed", node=name)
        for uid, running_pod in list(self._running.items()):
            if running_pod.pod.spec.node_name == name:
                self._release(uid)

    def _pods_changed(self, changes: ObjectChanges[Any]) -> None:
        if self._first_list is None:
            for item in changes.items:
                self._pod_changed(item)
            return
        # The first list is unordered: account for running pods before the admission of new ones.
        self._first_list += changes.items
        if changes.through:
            listed, self._first_list = self._first_list, None
            for pod in listed:
                if pod.status.phase == "Running":
                    self._adopt(pod)
            for pod in listed:
                self._pod_changed(pod)

    def _pod_changed(self, item: Any) -> None:
        if isinstance(item, Removed):
            self._forget(item.uid)
        else:
            self._pod_updated(item)

    def _pod_updated(self, pod: RunPod) -> None:
        uid, capacity = pod.metadata.uid, self._capacities.get(pod.spec.node_name or "")
        if capacity is None:
            return
        if pod.metadata.deletion_timestamp is not None:
            self._stop(pod, capacity)
        elif pod.ended:
            self._release(uid)
        elif uid in self._running:
            self._claims.update(pod)
        elif uid in self._finished:
            return
        else:
            self._admit(pod, capacity)

    def _admit(self, pod: RunPod, capacity: NodeCapacity) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name or ""
        rejection = capacity.admit(uid, read_class(pod).pod_class)
        if rejection is not None:
            self._finished.add(uid)
            _log.warning("pod_rejected", pod=pod.path, node=node, reason=rejection.reason, message=rejection.message)
            self._write(pod, pod_status.rejected(pod, rejection, now_text()))
            self._warn(pod, rejection.reason, rejection.message)
            return
        self._running[uid] = _RunningPod(pod, self._new_address())
        self._claims.prepare(pod, self._start_containers)

    def _report_waiting(self, pod: RunPod, problem: str, done: Callable[[], None]) -> None:
        """Report that the claims of a pod cannot be prepared."""
        message = f"Failed to prepare dynamic resources: {problem}"
        _log.warning("pod_waits_for_claims", pod=pod.path, node=pod.spec.node_name, message=message)
        self._write(pod, pod_status.waiting(pod, now_text()), done)
        self._warn(pod, "FailedPrepareDynamicResources", message)

    def _adopt(self, pod: RunPod) -> None:
        """Adopt a pod that a previous process of these kubelets started."""
        capacity = self._capacities.get(pod.spec.node_name or "")
        if capacity is None or pod.metadata.deletion_timestamp is not None:
            return
        capacity.take(pod.metadata.uid, read_class(pod).pod_class)
        self._claims.adopt(pod)
        running_pod = self._running[pod.metadata.uid] = _RunningPod(pod, self._new_address())
        running_pod.started = pod.status.start_time or running_pod.started
        started = parse_time(pod.status.start_time)
        self._schedule_end(running_pod, 0.0 if started is None else max(0.0, time.time() - started))

    def _start_containers(self, pod: RunPod) -> None:
        running_pod = self._running[pod.metadata.uid]
        running_pod.pod, running_pod.started = pod, now_text()
        node = self._nodes_by_name[pod.spec.node_name or ""]
        address = node.address if pod.spec.host_network else running_pod.address
        body = pod_status.running(pod, address, node.address, running_pod.started)
        self._write(pod, body, lambda: self._schedule_end(running_pod, 0.0))

    def _schedule_end(self, running_pod: _RunningPod, already_seconds: float) -> None:
        seconds = running_pod.pod.run_seconds
        if seconds is not None and running_pod.pod.metadata.uid in self._running:
            loop = asyncio.get_running_loop()
            running_pod.timer = loop.call_later(max(0.0, seconds - already_seconds), self._end, running_pod)

    def _end(self, running_pod: _RunningPod) -> None:
        """End the containers with success."""
        pod = running_pod.pod
        self._finished.add(pod.metadata.uid)
        self._release(pod.metadata.uid)
        self._write(pod, pod_status.ended(pod, 0, running_pod.started, now_text()))

    def _stop(self, pod: RunPod, capacity: NodeCapacity) -> None:
        """Stop a deleted pod after its own time to stop, regardless of its grace period."""
        uid = pod.metadata.uid
        running_pod = self._running.get(uid)
        if running_pod is None or not pod.stop_seconds:
            self._remove(pod, capacity)
        elif uid not in self._stopping:
            self._stopping.add(uid)
            running_pod.stop()
            loop = asyncio.get_running_loop()
            running_pod.timer = loop.call_later(pod.stop_seconds, self._remove, pod, capacity)

    def _remove(self, pod: RunPod, capacity: NodeCapacity) -> None:
        """End the containers of a deleted pod.

        They are first reported as killed, since Jobs wait for that.
        """
        uid = pod.metadata.uid
        running_pod = self._running.get(uid)
        self._release(uid)
        capacity.release(uid)
        if uid in self._removed:
            return
        self._finished.add(uid)
        self._removed.add(uid)
        if running_pod is None:
            self._delete_finally(pod)
        else:
            killed = pod_status.ended(pod, _KILLED, running_pod.started, now_text())
            self._write(pod, killed, lambda: self._delete_finally(pod))

    def _delete_finally(self, pod: RunPod) -> None:
        """Delete the pod for good: its containers have stopped."""
        options = DeleteOptions({"uid": pod.metadata.uid})
        self._calls.add("DELETE", pod.path, msgspec.json.encode(options), _JSON)

    def _release(self, uid: str) -> None:
        running_pod = self._running.pop(uid, None)
        if running_pod is None:
            return
        running_pod.stop()
        self._claims.release(running_pod.pod)
        if (capacity := self._capacities.get(running_pod.pod.spec.node_name or "")) is not None:
            capacity.release(uid)

    def _forget(self, uid: str) -> None:
        self._release(uid)
        self._finished.discard(uid)
        self._stopping.discard(uid)
        self._removed.discard(uid)

    def _warn(self, pod: RunPod, reason: str, message: str) -> None:
        event = pod_status.warning_event(pod, reason, message, now_text())
        self._calls.add("POST", f"/api/v1/namespaces/{pod.metadata.namespace}/events", event, _JSON)

    def _write(self, pod: RunPod, body: bytes, done: Any = None) -> None:
        self._calls.add("PATCH", f"{pod.path}/status", body, STRATEGIC_MERGE, done)

    def _new_address(self) -> str:
        self._addresses += 1
        number = self._addresses % (250 * 250 * 250)
        return f"10.{100 + number // 62_500 % 100}.{number // 250 % 250}.{number % 250 + 1}"

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        with contextlib.suppress(asyncio.CancelledError):
            if (error := task.exception()) is not None:
                _log.error("kubelet_task_failed", error=repr(error))
