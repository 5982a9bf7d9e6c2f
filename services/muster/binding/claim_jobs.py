"""The job of one claim in a Bind call, whatever volume it gets: reads the claim, and settles its pods."""

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from muster.binding.pipeline import Job
from muster.binding.request_bodies import MERGE_PATCH, SELECTED_NODE, selected_node_patch
from muster.binding.retry_policy import DONE, Retry, WriteOutcome, retryable, status_text, unreachable_outcome
from muster.binding.v1 import binding_pb2 as pb
from muster.binding.volume_checks import newest_event_text, unusable_reason
from muster.gangs.quoting import quoted
from muster.kube.objects import BadObject, BadResourceVersion
from muster.kube.paths import claim_path
from muster.kube.responses import KubeUnreachable, Response
from muster.kube.volume_facts import ClaimFacts, PersistentVolumeClaim, claim_facts, decode_claim

if TYPE_CHECKING:
    from muster.binding.volume_claims import VolumeClaims

_MAX_CONFLICTS: Final = 4  # then the API server's answer is final


class ClaimJob(Job):
    """Requests the volume of one claim, and waits until it is bound."""

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

    def __init__(self, claims: "VolumeClaims", namespace: str, name: str, pods: list[pb.PodBinding]) -> None:
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
        return await self._request_volume(claim, timeout_seconds)

    @abstractmethod
    async def _request_volume(self, claim: PersistentVolumeClaim, timeout_seconds: float) -> WriteOutcome:
        """Request the volume of a claim that is not bound, or wait for it. Raises KubeUnreachable."""

    async def _last_words(self, claim: PersistentVolumeClaim, timeout_seconds: float) -> str:
        """The latest news when the time is over, as the end of a sentence. Raises KubeUnreachable."""
        return await newest_event_text(self._claims.session, self._namespace, claim.metadata.uid, timeout_seconds)

    def _conflict(self, response: Response) -> WriteOutcome:
        """An object has changed since it was read: it is read again a few times."""
        self._conflicts += 1
        if self._conflicts < _MAX_CONFLICTS:
            return Retry(status_text(response))
        return self._fail(status_text(response))

    async def _wait(self, claim: PersistentVolumeClaim, timeout_seconds: float) -> WriteOutcome:
        """Retry when the watch has an update, or when it is time to poll. Raises KubeUnreachable."""
        reason = f"{self._what} has no volume on node {quoted(self._node)} yet"
        self._selected_at = self._selected_at or claim.metadata.revision
        if self._unsubscribe is None:
            self._subscribe(claim.metadata.uid)
            return Retry(reason)  # read once more: the watch does not replay changes from before the subscription
        if self._claims.is_last_attempt:
            return self._fail(reason + await self._last_words(claim, timeout_seconds))
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


class ProvisionClaim(ClaimJob):
    """Sets the selected node of one claim, and waits until it is bound."""

    __slots__ = ()

    async def _request_volume(self, claim: PersistentVolumeClaim, timeout_seconds: float) -> WriteOutcome:
        facts = claim_facts(claim)
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
            return self._conflict(response)
        if response.status >= 300:
            return self._refused(response)
        changed = self._read(response)
        if isinstance(changed, PersistentVolumeClaim):
            return await self._wait(changed, timeout_seconds)
        return changed
