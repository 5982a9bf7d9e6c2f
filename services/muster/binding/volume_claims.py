"""Volumes of WaitForFirstConsumer claims: sets each claim's selected node, then waits until it is bound. Claims without
a provisioner are bound to chosen volumes: `muster.binding.static_claims`.

    state of the claim                          action
    no selected node                            set it, unless the claim has changed since it was read
    this node is selected                       wait
    the selected node was removed               FAILED: the provisioner cannot create the volume there; quotes its event
    another node is selected                    by this call, for another pod: wait. By others: FAILED
    bound                                       its pods are bound; on a node other than the selected one only if the
                                                volume is usable there
    missing, being deleted, volume lost         FAILED

The nodes of all claims of a call are set before the call waits for any claim. Answers may be lost and requests repeated
at any time, so only the state of the claim counts. Only the provisioner, which may be at work, removes a selected node.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from muster.binding.claim_jobs import ClaimJob, ProvisionClaim
from muster.binding.claim_watch import ClaimWatch
from muster.binding.pipeline import Flow
from muster.binding.static_claims import BindStaticClaim
from muster.binding.v1 import binding_pb2 as pb
from muster.kube.session import KubeSession

_FINAL_READ_SECONDS: Final = 1.0  # before the deadline, so that the failure can name the claim's newest event
_FINAL_READ_SHARE: Final = 0.2


class VolumeClaims:
    """The claims of all pods of one call."""

    def __init__(
        self,
        pods: Sequence[pb.PodBinding],
        session: KubeSession,
        watch: ClaimWatch,
        flow: Flow,
        *,
        ready: Callable[[str], None],
        failed: Callable[[str, str], None],
    ) -> None:
        """`ready` is called with the uid of a pod when all its claims are bound, `failed` with the uid and the reason
        when one cannot be; exactly one of them for every pod that has claims.
        """
        self.session, self.watch, self.flow = session, watch, flow
        self._ready, self._failed = ready, failed
        self._unbound: dict[str, set[str]] = {pod.uid: set(pod.claims) for pod in pods if pod.claims}
        users: dict[tuple[str, str], list[pb.PodBinding]] = {}
        for pod in pods:
            for name in dict.fromkeys(pod.claims):
                users.setdefault((pod.namespace, name), []).append(pod)
        self._jobs = {self._job(*claim, of) for claim, of in users.items()}
        self.is_last_attempt = False
        self._alarm: asyncio.TimerHandle | None = None

    def provision(self, deadline: float) -> None:
        """Start the jobs of all claims. `deadline`: the deadline of the flow."""
        if not self._jobs:
            return
        loop = asyncio.get_running_loop()
        margin = min(_FINAL_READ_SECONDS, _FINAL_READ_SHARE * (deadline - loop.time()))
        self._alarm = loop.call_at(deadline - margin, self._attempt_last)
        in_order: list[ClaimJob] = sorted(self._jobs, key=lambda each: each.order)
        self.flow.add(in_order)

    def _job(self, namespace: str, name: str, pods: list[pb.PodBinding]) -> ClaimJob:
        volume = next((pod.volumes[name] for pod in pods if name in pod.volumes), "")
        if volume:
            return BindStaticClaim(self, namespace, name, pods, volume)
        return ProvisionClaim(self, namespace, name, pods)

    def claim_bound(self, name: str, uid: str) -> None:
        """A claim of the pod is bound and usable on the pod's node."""
        unbound = self._unbound.get(uid)
        if unbound is not None:
            unbound.discard(name)
            if not unbound:
                del self._unbound[uid]
                self._ready(uid)

    def claim_failed(self, uid: str, reason: str) -> None:
        """A claim of the pod has no volume that is usable on the pod's node."""
        if self._unbound.pop(uid, None) is not None:
            self._failed(uid, reason)

    def settled(self, job: ClaimJob) -> None:
        """The job of a claim has ended."""
        self._jobs.discard(job)
        if not self._jobs and self._alarm is not None:
            self._alarm.cancel()

    def _attempt_last(self) -> None:
        self.is_last_attempt = True
        for each in list(self._jobs):
            self.flow.retry_now(each)
