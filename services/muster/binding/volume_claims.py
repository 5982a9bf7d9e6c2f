"""Claims that get their volume only once they are told the node: each is told, then waited for.

    the claim                                   what is done
    not told                                    tell it the node, unless it has changed since it was looked at
    told this node                              wait
    was told, and is not any more               FAILED: who makes the volumes cannot on this node; with the last word
    told another node                           by this call, for another pod: wait. By others: FAILED
    bound                                       its pods are bound; those on other nodes than it was told only if the
                                                volume can be used there
    not there, being deleted, lost its volume   FAILED

All claims of a call are told before any is waited for. The answer to a request may be lost and the request repeated at
any time: what the claim says counts. A choice is taken back only by who makes the volumes, which may be under way.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from muster.binding.claim_watch import ClaimWatch
from muster.binding.pipeline import Flow, Job
from muster.binding.request_bodies import MERGE, SELECTED_NODE, claim_path, selected_node_patch
from muster.binding.retry_policy import DONE, Again, Verdict, no_answer, repeatable, said
from muster.binding.v1 import binding_pb2 as pb
from muster.binding.volume_checks import last_word, why_unusable
from muster.gangs.quoting import quoted
from muster.kube.objects import BadObject, BadResourceVersion
from muster.kube.responses import KubeUnreachable, Response
from muster.kube.session import KubeSession
from muster.kube.volume_facts import ClaimFacts, PersistentVolumeClaim, claim_facts, decode_claim

_LAST_LOOK_SECONDS: Final = 1.0  # before the deadline, so that there is time to say what was waited for
_LAST_LOOK_SHARE: Final = 0.2
_CHANGES_WITHOUT_CAUSE: Final = 4  # then what the API server says is taken for its last word


class Claims:
    """The claims of one call's pods."""

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
        """`ready` is told the uid of a pod all claims of which are bound, `failed` that of one that waits in vain, and
        why; exactly one of them for every pod that has claims.
        """
        self.session, self.watch, self.flow = session, watch, flow
        self._ready, self._failed = ready, failed
        self._missing: dict[str, set[str]] = {pod.uid: set(pod.claims) for pod in pods if pod.claims}
        users: dict[tuple[str, str], list[pb.PodBinding]] = {}
        for pod in pods:
            for name in dict.fromkeys(pod.claims):
                users.setdefault((pod.namespace, name), []).append(pod)
        self._serving = {ServeClaim(self, *claim, of) for claim, of in users.items()}
        self.late = False
        self._alarm: asyncio.TimerHandle | None = None

    def serve(self, deadline: float) -> None:
        """Tell all of them their nodes. `deadline`: that of the flow."""
        if not self._serving:
            return
        loop = asyncio.get_running_loop()
        margin = min(_LAST_LOOK_SECONDS, _LAST_LOOK_SHARE * (deadline - loop.time()))
        self._alarm = loop.call_at(deadline - margin, self._look_last)
        in_order: list[ServeClaim] = sorted(self._serving, key=lambda each: each.order)
        self.flow.add(in_order)

    def bound(self, name: str, uid: str) -> None:
        """A pod may use one of its claims."""
        missing = self._missing.get(uid)
        if missing is not None:
            missing.discard(name)
            if not missing:
                del self._missing[uid]
                self._ready(uid)

    def unbound(self, uid: str, why: str) -> None:
        """A pod may not use one of its claims."""
        if self._missing.pop(uid, None) is not None:
            self._failed(uid, why)

    def settled(self, served: "ServeClaim") -> None:
        """Nothing more is done about a claim."""
        self._serving.discard(served)
        if not self._serving and self._alarm is not None:
            self._alarm.cancel()

    def _look_last(self) -> None:
        self.late = True
        for each in list(self._serving):
            self.flow.hasten(each)


class ServeClaim(Job):
    """Tells one claim the node of its pods, and waits until it is bound."""

    __slots__ = (
        "_changes",
        "_claims",
        "_end_of_news",
        "_name",
        "_namespace",
        "_news",
        "_node",
        "_pods",
        "_seen",
        "_told",
    )

    def __init__(self, claims: Claims, namespace: str, name: str, pods: list[pb.PodBinding]) -> None:
        super().__init__()
        self._claims, self._namespace, self._name = claims, namespace, name
        self._node = pods[0].node
        self._pods = {pod.uid: pod.node for pod in pods}
        self._changes = 0
        self._seen = self._told = 0  # resourceVersions: of what was looked at, and since when it is told the node
        self._news: PersistentVolumeClaim | None = None
        self._end_of_news: Callable[[], None] | None = None

    @property
    def order(self) -> tuple[str, str]:
        """The same for every request."""
        return self._namespace, self._name

    async def attempt(self, timeout_seconds: float) -> Verdict:
        try:
            found = await self._look(timeout_seconds)
            if isinstance(found, PersistentVolumeClaim):
                return await self._proceed(found, timeout_seconds)
            return found
        except KubeUnreachable as error:
            return no_answer(error)

    def give_up(self, why: str) -> None:
        self._fail(why)

    async def _look(self, timeout_seconds: float) -> PersistentVolumeClaim | Verdict:
        """The claim as the watch told it, else as it is now. Raises KubeUnreachable."""
        if self._news is not None:
            claim, self._news = self._news, None
            return claim
        path = claim_path(self._namespace, self._name)
        response = await self._claims.session.request("GET", path, timeout_seconds=timeout_seconds)
        if response.status != 200:
            return self._refused(response)
        return self._read(response)

    def _read(self, response: Response) -> PersistentVolumeClaim | Verdict:
        try:
            claim = decode_claim(response.body)
            self._seen = max(self._seen, claim.metadata.revision)
        except (BadObject, BadResourceVersion) as error:
            return self._fail(str(error))
        return claim

    async def _proceed(self, claim: PersistentVolumeClaim, timeout_seconds: float) -> Verdict:
        """Do what its state asks for. Raises KubeUnreachable."""
        facts = claim_facts(claim)
        if facts.deleting:
            return self._fail(f"{self._what} is being deleted")
        if facts.lost:
            return self._fail(f"{self._what} has lost its volume {quoted(facts.volume)}")
        if facts.bound:
            return await self._deliver(facts, timeout_seconds)
        if facts.selected_node == self._node:
            return await self._wait(claim, timeout_seconds)
        if facts.selected_node:
            return self._fail(
                f"{self._what} waits for a volume on node {quoted(facts.selected_node)} already ({SELECTED_NODE}); "
                f"until that is taken back none is made for node {quoted(self._node)}"
            )
        if self._told:
            why = await last_word(self._claims.session, self._namespace, facts.uid, timeout_seconds)
            node = quoted(self._node)
            return self._fail(
                f"no volume can be made for {self._what} on node {node}: {SELECTED_NODE} was removed{why}"
            )
        return await self._tell(claim, timeout_seconds)

    async def _tell(self, claim: PersistentVolumeClaim, timeout_seconds: float) -> Verdict:
        """Raises KubeUnreachable."""
        metadata = claim.metadata
        self._follow(metadata.uid)
        response = await self._claims.session.request(
            "PATCH",
            claim_path(self._namespace, self._name),
            body=selected_node_patch(metadata.uid, metadata.resource_version, self._node),
            content_type=MERGE,
            timeout_seconds=timeout_seconds,
        )
        if response.status in (409, 422):  # it has changed, or is another by now
            self._changes += 1
            return Again(said(response)) if self._changes < _CHANGES_WITHOUT_CAUSE else self._fail(said(response))
        if response.status >= 300:
            return self._refused(response)
        changed = self._read(response)
        if isinstance(changed, PersistentVolumeClaim):
            return await self._wait(changed, timeout_seconds)
        return changed

    async def _wait(self, claim: PersistentVolumeClaim, timeout_seconds: float) -> Verdict:
        """For the watch to tell something newer; it is looked at now and then nevertheless. Raises KubeUnreachable."""
        why = f"{self._what} has no volume on node {quoted(self._node)} yet"
        self._told = self._told or claim.metadata.revision
        if self._end_of_news is None:
            self._follow(claim.metadata.uid)
            return Again(why)  # look once more: what happened before it was followed is not told
        if self._claims.late:
            uid = claim.metadata.uid
            last = await last_word(self._claims.session, self._namespace, uid, timeout_seconds)
            return self._fail(why + last)
        return Again(why, None if self._news is not None else self._claims.watch.look_seconds)

    async def _deliver(self, facts: ClaimFacts, timeout_seconds: float) -> Verdict:
        """It has a volume: whoever made it for a node knows that it can be used there. Raises KubeUnreachable."""
        for uid, node in list(self._pods.items()):
            why: str | Verdict = ""
            if node != facts.selected_node:
                why = await why_unusable(self._claims.session, facts.volume, node, timeout_seconds)
            if not isinstance(why, str):
                return why
            del self._pods[uid]
            if why:
                self._claims.unbound(uid, f"{self._what}: {why}")
            else:
                self._claims.bound(self._name, uid)
        return self._done()

    def _follow(self, uid: str) -> None:
        if self._end_of_news is None:
            self._end_of_news = self._claims.watch.follow(uid, self._take_news)

    def _take_news(self, claim: PersistentVolumeClaim | None) -> None:
        if claim is not None:
            if claim.metadata.revision <= self._seen:
                return
            self._seen = claim.metadata.revision
        self._news = claim
        self._claims.flow.hasten(self)

    def _refused(self, response: Response) -> Verdict:
        return repeatable(response) or self._fail(f"{self._what}: {said(response)}")

    def _fail(self, why: str) -> Verdict:
        for uid in self._pods:
            self._claims.unbound(uid, why)
        return self._done()

    def _done(self) -> Verdict:
        if self._end_of_news is not None:
            self._end_of_news()
        self._claims.settled(self)
        return DONE

    @property
    def _what(self) -> str:
        return f"PersistentVolumeClaim {quoted(self._name)}"
