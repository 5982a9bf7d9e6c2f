"""Provisions volumes of WaitForFirstConsumer claims: sets each claim's selected node, then waits until it is bound.

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

from muster.binding.claim_watch import ClaimWatch
from muster.binding.pipeline import Flow, Job
from muster.binding.request_bodies import MERGE_PATCH, SELECTED_NODE, selected_node_patch
from muster.binding.retry_policy import DONE, Retry, WriteOutcome, retryable, status_text, unreachable_outcome
from muster.binding.v1 import binding_pb2 as pb
from muster.binding.volume_checks import newest_event_text, unusable_reason
from muster.gangs.quoting import quoted
from muster.kube.objects import BadObject, BadResourceVersion
from muster.kube.paths import claim_path
from muster.kube.responses import KubeUnreachable, Response
from muster.kube.session import KubeSession
from muster.kube.volume_facts import ClaimFacts, PersistentVolumeClaim, claim_facts, decode_claim

_FINAL_READ_SECONDS: Final = 1.0  # before the deadline, so that the failure can name the claim's newest event
_FINAL_READ_SHARE: Final = 0.2
_MAX_CONFLICTS: Final = 4  # then the API server's answer is final


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
        self._jobs = {ProvisionClaim(self, *claim, of) for claim, of in users.items()}
        self.is_last_attempt = False
        self._alarm: asyncio.TimerHandle | None = None

    def provision(self, deadline: float) -> None:
        """Start the jobs of all claims. `deadline`: the deadline of the flow."""
        if not self._jobs:
            return
        loop = asyncio.get_running_loop()
        margin = min(_FINAL_READ_SECONDS, _FINAL_READ_SHARE * (deadline - loop.time()))
        self._alarm = loop.call_at(deadline - margin, self._attempt_last)
        in_order: list[ProvisionClaim] = sorted(self._jobs, key=lambda each: each.order)
        self.flow.add(in_order)

    def claim_bound(self, name: str, uid: str) -> None:
        """One of the pod's claims is bound and usable on the pod's node."""
        unbound = self._unbound.get(uid)
        if unbound is not None:
            unbound.discard(name)
            if not unbound:
                del self._unbound[uid]
                self._ready(uid)

    def claim_failed(self, uid: str, reason: str) -> None:
        """One of the pod's claims has no volume that is usable on the pod's node."""
        if self._unbound.pop(uid, None) is not None:
            self._failed(uid, reason)

    def settled(self, job: "ProvisionClaim") -> None:
        """The job of a claim has ended."""
        self._jobs.discard(job)
        if not self._jobs and self._alarm is not None:
            self._alarm.cancel()

    def _attempt_last(self) -> None:
        self.is_last_attempt = True
        for each in list(self._jobs):
            self.flow.retry_now(each)


class ProvisionClaim(Job):
    """Sets the selected node of one claim, and waits until it is bound."""

    __slots__ = (
        "_claims",
        "_conflicts",
        "_name",
        "_namespace",
        "_node",
        "_pods",
        "_seen",
        "_selected_at",
        "_unsubscribe",
        "_update",
    )

    def __init__(self, claims: VolumeClaims, namespace: str, name: str, pods: list[pb.PodBinding]) -> None:
        super().__init__()
        self._claims, self._namespace, self._name = claims, namespace, name
        self._node = pods[0].node
        self._pods = {pod.uid: pod.node for pod in pods}
        self._conflicts = 0
        self._seen = 0  # resourceVersion of the newest state read
        self._selected_at = 0  # resourceVersion since which the node is selected; 0: never
        self._update: PersistentVolumeClaim | None = None
        self._unsubscribe: Callable[[], None] | None = None

    @property
    def order(self) -> tuple[str, str]:
        """Sort key that is the same in every call."""
        return self._namespace, self._name

    async def attempt(self, timeout_seconds: float) -> WriteOutcome:
        try:
            found = await self._get(timeout_seconds)
            if isinstance(found, PersistentVolumeClaim):
                return await self._proceed(found, timeout_seconds)
            return found
        except KubeUnreachable as error:
            return unreachable_outcome(error)

    def give_up(self, reason: str) -> None:
        self._fail(reason)

    async def _get(self, timeout_seconds: float) -> PersistentVolumeClaim | WriteOutcome:
        """The claim from the watch, or else from the API server. Raises KubeUnreachable."""
        if self._update is not None:
            claim, self._update = self._update, None
            return claim
        path = claim_path(self._namespace, self._name)
        response = await self._claims.session.request("GET", path, timeout_seconds=timeout_seconds)
        if response.status != 200:
            return self._refused(response)
        return self._read(response)

    def _read(self, response: Response) -> PersistentVolumeClaim | WriteOutcome:
        try:
            claim = decode_claim(response.body)
            self._seen = max(self._seen, claim.metadata.revision)
        except (BadObject, BadResourceVersion) as error:
            return self._fail(str(error))
        return claim

    async def _proceed(self, claim: PersistentVolumeClaim, timeout_seconds: float) -> WriteOutcome:
        """Act on the state of the claim; see the table. Raises KubeUnreachable."""
        facts = claim_facts(claim)
        if facts.deleting:
            return self._fail(f"{self._what} is being deleted")
        if facts.lost:
            return self._fail(f"{self._what} has lost its volume {quoted(facts.volume)}")
        if facts.bound:
            return await self._settle_pods(facts, timeout_seconds)
        if facts.selected_node == self._node:
            return await self._wait(claim, timeout_seconds)
        if facts.selected_node:
            return self._fail(
                f"{self._what} already waits for a volume on node {quoted(facts.selected_node)} ({SELECTED_NODE}); "
                f"until that annotation is removed no volume can be created on node {quoted(self._node)}"
            )
        if self._selected_at:
            reason = await newest_event_text(self._claims.session, self._namespace, facts.uid, timeout_seconds)
            node = quoted(self._node)
            return self._fail(
                f"no volume can be created for {self._what} on node {node}: {SELECTED_NODE} was removed{reason}"
            )
        return await self._select_node(claim, timeout_seconds)

    async def _select_node(self, claim: PersistentVolumeClaim, timeout_seconds: float) -> WriteOutcome:
        """Raises KubeUnreachable."""
        metadata = claim.metadata
        self._subscribe(metadata.uid)
        response = await self._claims.session.request(
            "PATCH",
            claim_path(self._namespace, self._name),
            body=selected_node_patch(metadata.uid, metadata.resource_version, self._node),
            content_type=MERGE_PATCH,
            timeout_seconds=timeout_seconds,
        )
        if response.status in (409, 422):  # the claim has changed, or another claim has the name
            self._conflicts += 1
            if self._conflicts < _MAX_CONFLICTS:
                return Retry(status_text(response))
            return self._fail(status_text(response))
        if response.status >= 300:
            return self._refused(response)
        changed = self._read(response)
        if isinstance(changed, PersistentVolumeClaim):
            return await self._wait(changed, timeout_seconds)
        return changed

    async def _wait(self, claim: PersistentVolumeClaim, timeout_seconds: float) -> WriteOutcome:
        """Retry when the watch has an update, or when it is time to poll. Raises KubeUnreachable."""
        reason = f"{self._what} has no volume on node {quoted(self._node)} yet"
        self._selected_at = self._selected_at or claim.metadata.revision
        if self._unsubscribe is None:
            self._subscribe(claim.metadata.uid)
            return Retry(reason)  # read once more: the watch does not replay changes from before the subscription
        if self._claims.is_last_attempt:
            uid = claim.metadata.uid
            last = await newest_event_text(self._claims.session, self._namespace, uid, timeout_seconds)
            return self._fail(reason + last)
        return Retry(reason, None if self._update is not None else self._claims.watch.poll_seconds)

    async def _settle_pods(self, facts: ClaimFacts, timeout_seconds: float) -> WriteOutcome:
        """Settle the pods of a bound claim, whose volume is usable on its selected node. Raises KubeUnreachable."""
        for uid, node in list(self._pods.items()):
            reason: str | WriteOutcome = ""
            if node != facts.selected_node:
                reason = await unusable_reason(self._claims.session, facts.volume, node, timeout_seconds)
            if not isinstance(reason, str):
                return reason
            del self._pods[uid]
            if reason:
                self._claims.claim_failed(uid, f"{self._what}: {reason}")
            else:
                self._claims.claim_bound(self._name, uid)
        return self._done()

    def _subscribe(self, uid: str) -> None:
        if self._unsubscribe is None:
            self._unsubscribe = self._claims.watch.subscribe(uid, self._on_update)

    def _on_update(self, claim: PersistentVolumeClaim | None) -> None:
        if claim is not None:
            if claim.metadata.revision <= self._seen:
                return
            self._seen = claim.metadata.revision
        self._update = claim
        self._claims.flow.retry_now(self)

    def _refused(self, response: Response) -> WriteOutcome:
        return retryable(response) or self._fail(f"{self._what}: {status_text(response)}")

    def _fail(self, reason: str) -> WriteOutcome:
        for uid in self._pods:
            self._claims.claim_failed(uid, reason)
        return self._done()

    def _done(self) -> WriteOutcome:
        if self._unsubscribe is not None:
            self._unsubscribe()
        self._claims.settled(self)
        return DONE

    @property
    def _what(self) -> str:
        return f"PersistentVolumeClaim {quoted(self._name)}"
