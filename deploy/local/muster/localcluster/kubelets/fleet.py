"""All simulated kubelets in one: pods that are bound to their nodes are admitted, run, ended and removed."""

import asyncio
import contextlib
from collections.abc import Sequence
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
from muster.localcluster.kubelets import statuses
from muster.localcluster.kubelets.admission import NodeRoom
from muster.localcluster.kubelets.calls import STRATEGIC_MERGE, Calls
from muster.localcluster.kubelets.heartbeats import Heartbeats
from muster.localcluster.kubelets.shapes import NodeShape
from muster.localcluster.kubelets.times import now_text, seconds_since
from muster.localcluster.kubelets.wire import PODS, DeleteOptions, RunPod

_JSON: Final = "application/json"
_FIRST_BACKOFF_SECONDS: Final = 10.0
_LONGEST_BACKOFF_SECONDS: Final = 300.0
_KILLED: Final = 137
"""Exit code of containers that were killed."""

_log: Final = structlog.get_logger(__name__)


class _Life:
    """A pod that is run."""

    __slots__ = ("address", "pod", "restarts", "started", "timer")

    def __init__(self, pod: RunPod, address: str) -> None:
        self.pod, self.address = pod, address
        self.restarts = 0
        self.started = now_text()
        self.timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


class Kubelets:
    """The kubelets of some simulated nodes. `renew_seconds`: how often a node renews its lease."""

    def __init__(self, session: KubeSession, shapes: Sequence[NodeShape], *, renew_seconds: float = 10.0) -> None:
        self._shapes = {shape.name: shape for shape in shapes}
        self._calls = Calls(session)
        self._heartbeats = Heartbeats(session, shapes, renew_seconds)
        self._pods = Informer(session, PODS, self._pods_changed)
        self._nodes: Informer[Node] = Informer(session, NODES, self._nodes_changed)
        self._rooms: dict[str, NodeRoom] = {}
        self._node_names: dict[str, str] = {}  # by uid
        self._lives: dict[str, _Life] = {}  # by pod uid
        self._done: set[str] = set()  # uids of pods that were refused, have ended or are being removed
        self._removed: set[str] = set()  # uids of pods whose last deletion was asked for
        self._before_us: list[Any] | None = []  # pods of the first list, until it is complete
        self._addresses = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Create the nodes and run their kubelets from now on."""
        await self._heartbeats.register()
        self._spawn(self._nodes.run())
        await self._nodes.complete.wait()  # pods are judged by their nodes
        self._spawn(self._calls.run())
        self._spawn(self._pods.run())
        self._spawn(self._heartbeats.run(lambda name: name in self._rooms))

    async def stop(self) -> None:
        """Stop at once; pods and nodes stay in the API as they are."""
        for life in self._lives.values():
            life.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def run(self) -> None:
        """Start, and go on until cancelled or something fails for good."""
        await self.start()
        try:
            await asyncio.gather(*self._tasks)
        finally:
            await self.stop()

    # -- nodes

    def _nodes_changed(self, changes: ObjectChanges[Node]) -> None:
        for item in changes.items:
            if isinstance(item, Removed):
                self._node_gone(self._node_names.pop(item.uid, ""))
            elif item.metadata.name in self._shapes:
                self._node_seen(item)

    def _node_seen(self, node: Node) -> None:
        name, facts = node.metadata.name, node_facts(node)
        self._node_names[node.metadata.uid] = name
        if (room := self._rooms.get(name)) is None:
            self._rooms[name] = NodeRoom(facts)
        else:
            room.update(facts)
        if not facts.ready:
            self._spawn(self._heartbeats.report_ready(name))

    def _node_gone(self, name: str) -> None:
        """Without its Node object a kubelet has nothing to do; its pods are for others to clear away."""
        if self._rooms.pop(name, None) is None:
            return
        _log.info("node is gone; its kubelet stops", node=name)
        for uid, life in list(self._lives.items()):
            if life.pod.spec.node_name == name:
                life.stop()
                del self._lives[uid]

    # -- pods

    def _pods_changed(self, changes: ObjectChanges[Any]) -> None:
        if self._before_us is None:
            for item in changes.items:
                self._pod_changed(item)
            return
        # The first list is in no order: what runs already has its room before anything new is judged.
        self._before_us += changes.items
        if changes.through:
            listed, self._before_us = self._before_us, None
            for pod in listed:
                if pod.status.phase == "Running":
                    self._adopt(pod)
            for pod in listed:
                self._pod_changed(pod)

    def _pod_changed(self, item: Any) -> None:
        if isinstance(item, Removed):
            self._forget(item.uid)
        else:
            self._pod_seen(item)

    def _pod_seen(self, pod: RunPod) -> None:
        uid, room = pod.metadata.uid, self._rooms.get(pod.spec.node_name or "")
        if room is None:
            return
        if pod.metadata.deletion_timestamp is not None:
            self._remove(pod, room)
        elif pod.ended:
            self._release(uid)
        elif uid in self._lives or uid in self._done:
            return
        else:
            self._arrived(pod, room)

    def _arrived(self, pod: RunPod, room: NodeRoom) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name or ""
        refusal = room.admit(uid, read_class(pod).pod_class)
        if refusal is not None:
            self._done.add(uid)
            _log.warning("pod refused", pod=pod.path, node=node, reason=refusal.reason, message=refusal.message)
            self._write(pod, statuses.rejected(pod, refusal, now_text()))
            event = statuses.rejection_event(pod, refusal, node, now_text())
            self._calls.add("POST", f"/api/v1/namespaces/{pod.metadata.namespace}/events", event, _JSON)
            return
        life = self._lives[uid] = _Life(pod, self._new_address())
        self._say_running(life)

    def _adopt(self, pod: RunPod) -> None:
        """The pod was started by a kubelet before us."""
        room = self._rooms.get(pod.spec.node_name or "")
        if room is None or pod.metadata.deletion_timestamp is not None:
            return
        room.take(pod.metadata.uid, read_class(pod).pod_class)
        life = self._lives[pod.metadata.uid] = _Life(pod, self._new_address())
        life.started = pod.status.start_time or life.started
        self._end_later(life, seconds_since(pod.status.start_time))

    def _say_running(self, life: _Life) -> None:
        life.started = now_text()
        node = self._shapes[life.pod.spec.node_name or ""]
        address = node.address if life.pod.spec.host_network else life.address
        body = statuses.running(life.pod, address, node.address, life.started, life.restarts)
        self._write(life.pod, body, lambda: self._end_later(life, 0.0))

    def _end_later(self, life: _Life, already_seconds: float) -> None:
        seconds = life.pod.run_seconds
        if seconds is not None and life.pod.metadata.uid in self._lives:
            loop = asyncio.get_running_loop()
            life.timer = loop.call_later(max(0.0, seconds - already_seconds), self._end, life)

    def _end(self, life: _Life) -> None:
        """The containers have run for their time."""
        pod, code = life.pod, life.pod.exit_code
        policy = pod.spec.restart_policy
        if policy == "Always" or (policy == "OnFailure" and code):
            pause = min(_FIRST_BACKOFF_SECONDS * 2.0 ** min(life.restarts, 16), _LONGEST_BACKOFF_SECONDS)
            life.restarts += 1
            self._write(pod, statuses.backing_off(pod, code, life.started, now_text(), life.restarts))
            life.timer = asyncio.get_running_loop().call_later(pause, self._say_running, life)
            return
        self._done.add(pod.metadata.uid)
        self._release(pod.metadata.uid)
        self._write(pod, statuses.ended(pod, code, life.started, now_text(), life.restarts))

    def _remove(self, pod: RunPod, room: NodeRoom) -> None:
        """Somebody deletes the pod: it stops at once, whatever grace it was given. That its containers were killed is
        told first, as Jobs wait for it.
        """
        uid = pod.metadata.uid
        life = self._lives.get(uid)
        self._release(uid)
        room.release(uid)
        if uid in self._removed:
            return
        self._done.add(uid)
        self._removed.add(uid)
        if life is None:
            self._let_go(pod)
        else:
            killed = statuses.ended(pod, _KILLED, life.started, now_text(), life.restarts)
            self._write(pod, killed, lambda: self._let_go(pod))

    def _let_go(self, pod: RunPod) -> None:
        """Nothing of it is left on the node."""
        options = DeleteOptions({"uid": pod.metadata.uid})
        self._calls.add("DELETE", pod.path, msgspec.json.encode(options), _JSON)

    def _release(self, uid: str) -> None:
        life = self._lives.pop(uid, None)
        if life is None:
            return
        life.stop()
        if (room := self._rooms.get(life.pod.spec.node_name or "")) is not None:
            room.release(uid)

    def _forget(self, uid: str) -> None:
        self._release(uid)
        self._done.discard(uid)
        self._removed.discard(uid)

    # -- both

    def _write(self, pod: RunPod, body: bytes, done: Any = None) -> None:
        self._calls.add("PATCH", f"{pod.path}/status", body, STRATEGIC_MERGE, done)

    def _new_address(self) -> str:
        self._addresses += 1
        number = self._addresses % (250 * 250 * 250)
        return f"10.{100 + number // 62_500 % 100}.{number // 250 % 250}.{number % 250 + 1}"

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._settled)

    def _settled(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        with contextlib.suppress(asyncio.CancelledError):
            if (error := task.exception()) is not None:
                _log.error("a kubelet's task failed", error=repr(error))
