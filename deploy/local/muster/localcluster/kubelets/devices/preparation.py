"""Prepares the ResourceClaims of pods before their containers start, as a kubelet with its drivers does.

A pod waits until all its claims exist, are allocated and reserved for it, and their devices are available.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from muster.kube.gang_marks import pod_group_of
from muster.kube.informer import Informer
from muster.kube.object_changes import ObjectChanges, Removed
from muster.kube.session import KubeSession
from muster.localcluster.kubelets.devices.claims import RESOURCE_CLAIMS, ResourceClaim, UsedClaim, used_claims
from muster.localcluster.kubelets.devices.prepared import NodeDevices
from muster.localcluster.kubelets.pod_types import RunPod
from muster.localcluster.kubelets.simulated_nodes import SimulatedNode

_REPORT_SECONDS: Final = 0.5  # the watch of claims may lag behind that of pods

Report = Callable[[RunPod, str, Callable[[], None]], None]
"""(pod, problem, done): report that a pod waits, and call `done` once that is written."""


class _NotReady(Exception):
    """The claims of a pod cannot be prepared; says why."""


class _Waiting:
    """Pod that waits for its claims."""

    __slots__ = ("claims", "is_reporting", "pod", "problem", "reported", "start", "timer")

    def __init__(self, pod: RunPod, start: Callable[[RunPod], None]) -> None:
        self.pod, self.start = pod, start
        self.claims: set[str] = set()
        """Keys of the claims that it needs, as far as they are known."""
        self.problem = self.reported = ""
        self.is_reporting = False
        self.timer: asyncio.TimerHandle | None = None


class ClaimPreparation:
    """Claims of all pods on simulated nodes."""

    def __init__(self, session: KubeSession, nodes: Sequence[SimulatedNode], report: Report) -> None:
        self._informer = Informer(session, RESOURCE_CLAIMS, self._changed)
        self._report = report
        self._claims: dict[str, ResourceClaim] = {}  # by key
        self._keys: dict[str, str] = {}  # claim uid -> key
        self._devices = {node.name: NodeDevices(node.name, node.cards) for node in nodes if node.cards is not None}
        self._waiting: dict[str, _Waiting] = {}  # by pod uid, until it starts or is released
        self._waiting_for: dict[str, set[str]] = {}  # claim key or node -> uids of waiting pods

    @property
    def complete(self) -> asyncio.Event:
        """Set once all existing claims are known."""
        return self._informer.complete

    async def run(self) -> None:
        """Watch claims until cancelled."""
        await self._informer.run()

    def prepare(self, pod: RunPod, start: Callable[[RunPod], None]) -> None:
        """Call `start` with the latest version of the pod once its claims are prepared; at once if it has none."""
        try:
            self._prepare(pod)
        except _NotReady as problem:
            waiting = self._waiting[pod.metadata.uid] = _Waiting(pod, start)
            self._wait(waiting, str(problem))
            waiting.timer = asyncio.get_running_loop().call_later(_REPORT_SECONDS, self._write_report, waiting)
        else:
            start(pod)

    def update(self, pod: RunPod) -> None:
        """Note a new version of a pod; has no effect if it does not wait."""
        if (waiting := self._waiting.get(pod.metadata.uid)) is not None:
            waiting.pod = pod
            self._retry(waiting)

    def adopt(self, pod: RunPod) -> None:
        """Prepare the claims of a running pod, which runs on if they cannot be prepared."""
        with contextlib.suppress(_NotReady):
            self._prepare(pod)

    def release(self, pod: RunPod) -> None:
        """Stop waiting, and release the devices of a pod that has ended or is gone."""
        uid, node = pod.metadata.uid, pod.spec.node_name or ""
        if (waiting := self._waiting.get(uid)) is not None:
            self._forget(waiting)
        if (devices := self._devices.get(node)) is not None and devices.release(uid):
            self._retry_all(node)

    def _changed(self, changes: ObjectChanges[Any]) -> None:
        for item in changes.items:
            if isinstance(item, Removed):
                key = self._keys.pop(item.uid, "")
                if key in self._claims and self._claims[key].metadata.uid == item.uid:
                    del self._claims[key]
                continue
            self._claims[item.key] = item
            self._keys[item.metadata.uid] = item.key
            self._retry_all(item.key)

    def _prepare(self, pod: RunPod) -> None:
        """Raises _NotReady."""
        try:
            entries = used_claims(pod)
        except msgspec.DecodeError as error:
            raise _NotReady(f"the claims of the pod cannot be read: {error}") from error
        claims = [claim for entry in entries if (claim := self._ready(pod, entry)) is not None]
        if claims and (devices := self._devices.get(pod.spec.node_name or "")) is not None:
            problem = devices.prepare(claims, pod.metadata.uid)
            if problem:
                raise _NotReady(problem)

    def _ready(self, pod: RunPod, entry: UsedClaim) -> ResourceClaim | None:
        """The claim of an entry, if the pod may use it; None: none is needed. Raises _NotReady."""
        metadata, name = pod.metadata, entry.claim
        if name is None:
            raise _NotReady(f"pod {metadata.namespace}/{metadata.name}: ResourceClaim not created yet: {entry.name}")
        if not name:
            return None
        claim = self._claims.get(f"{metadata.namespace}/{name}")
        if claim is None:
            raise _NotReady(f'fetch ResourceClaim {name}: resourceclaims.resource.k8s.io "{name}" not found')
        group = pod_group_of(pod)
        of_group = bool(group) and claim.is_reserved_for("", group)
        if entry.generated and claim.metadata.controller != metadata.uid and not of_group:
            raise _NotReady(f"ResourceClaim {claim.key} was not created for pod {metadata.namespace}/{metadata.name}")
        if not (of_group or claim.is_reserved_for(metadata.uid)):
            named = f"ResourceClaim {name} ({claim.metadata.uid})"
            raise _NotReady(f"pod {metadata.name} ({metadata.uid}) is not allowed to use {named}")
        return claim

    def _retry_all(self, key: str) -> None:
        """Try again for the pods that wait for a claim or for devices of a node."""
        for uid in list(self._waiting_for.get(key, ())):
            if (waiting := self._waiting.get(uid)) is not None:
                self._retry(waiting)

    def _retry(self, waiting: _Waiting) -> None:
        if waiting.is_reporting:
            return  # tried again afterwards, so that the report is not written over a later status
        try:
            self._prepare(waiting.pod)
        except _NotReady as problem:
            self._wait(waiting, str(problem))
            if waiting.reported:
                self._write_report(waiting)
        else:
            self._forget(waiting)
            waiting.start(waiting.pod)

    def _wait(self, waiting: _Waiting, problem: str) -> None:
        pod = waiting.pod
        waiting.problem = problem
        try:
            names = {f"{pod.metadata.namespace}/{each.claim}" for each in used_claims(pod) if each.claim}
        except msgspec.DecodeError:
            names = set()
        for key in (names | {pod.spec.node_name or ""}) - waiting.claims:
            waiting.claims.add(key)
            self._waiting_for.setdefault(key, set()).add(pod.metadata.uid)

    def _forget(self, waiting: _Waiting) -> None:
        uid = waiting.pod.metadata.uid
        if waiting.timer is not None:
            waiting.timer.cancel()
        del self._waiting[uid]
        for key in waiting.claims:
            pods = self._waiting_for[key]
            pods.discard(uid)
            if not pods:
                del self._waiting_for[key]

    def _write_report(self, waiting: _Waiting) -> None:
        if waiting.reported == waiting.problem:
            return
        waiting.reported, waiting.is_reporting = waiting.problem, True

        def done() -> None:
            waiting.is_reporting = False
            if self._waiting.get(waiting.pod.metadata.uid) is waiting:
                self._retry(waiting)

        self._report(waiting.pod, waiting.problem, done)
