"""The writes of a Bind call to one ResourceClaim: before its pods are bound, and after they could not be.

Each attempt acts on the claim's state, so that repeated calls and lost answers do no harm. What is to be allocated is
protected first, which tells the state as well, or allocated at once, if new claims are protected already; otherwise the
claim is read. A write of the status replaces the version that was read; after a conflict the claim is read again, a few
times.
"""

import time
from abc import abstractmethod
from collections.abc import Awaitable, Collection
from typing import TYPE_CHECKING, Final

from muster.binding.device_claim_status import (
    BadDeviceClaim,
    ClaimRejected,
    Consumer,
    DeviceClaimState,
    Step,
    WantedClaim,
    allocated_claim,
    deallocated_claim,
    first_allocation_patch,
    next_step,
    protection_patch,
    read_claim,
    released_claim,
    reserved_claim,
    unreserved,
    used_by,
)
from muster.binding.extended_claims import Creation
from muster.binding.pipeline import Job
from muster.binding.request_bodies import JSON, JSON_PATCH, STRATEGIC_MERGE_PATCH
from muster.binding.retry_policy import (
    DONE,
    Retry,
    WriteOutcome,
    is_certain,
    retryable,
    status_text,
    unreachable_outcome,
)
from muster.binding.v1 import binding_pb2 as pb
from muster.devices.decoding import MAX_RESERVED_FOR
from muster.gangs.quoting import quoted
from muster.kube.objects import BadObject, decode_pod
from muster.kube.paths import object_path, pod_path
from muster.kube.responses import KubeUnreachable, Response
from muster.kube.session import Method

if TYPE_CHECKING:
    from muster.binding.device_claims import DeviceClaims

_VERSION: Final = "resource.k8s.io/v1"
_MAX_CONFLICTS: Final = 6  # then the API server's answer is final; drivers and kube-controller-manager write, too
_MAX_WRITES: Final = 4  # of one attempt: deallocate, protect, allocate, and one more


class DeviceClaimWrites:
    """State of one claim in a Bind call: the wanted allocation, and the part that is written."""

    def __init__(self, wanted: WantedClaim, creation: Creation | None = None) -> None:
        """`creation`: how the claim is created; None: it exists."""
        self.wanted, self.creation = wanted, creation
        self.pods: dict[str, pb.PodBinding] = {}
        """Pods by uid that the claim is to be reserved for: until they are settled."""
        self.users: set[str] = set()
        """Uids of the pods of the call that use it: until they are released."""
        self.groups: dict[str, Consumer] = {}
        """PodGroups for which it is reserved instead of the pods with these uids, until the end of the call."""
        self.reserved: set[str] = set()
        """Uids of pods, or of their PodGroup, that the call reserved it for, or may have: an answer was lost."""
        self.allocated = False
        """The call wrote the allocation, or may have."""
        self.leaving: set[str] = set()
        """Uids of pods whose reservations, or that of their PodGroup, are to be removed."""
        self.busy = False
        """A job is queued or running."""

    @property
    def wanted_users(self) -> dict[str, Consumer]:
        """Pods, or their PodGroup, by uid, that the claim is to be reserved for: until the pods are settled."""
        users = (self.groups.get(uid) or Consumer("pods", pod.name, uid) for uid, pod in self.pods.items())
        return {each.uid: each for each in users}

    def reservation_of(self, uid: str) -> str:
        """Uid in the reservation for a pod."""
        group = self.groups.get(uid)
        return uid if group is None else group.uid

    def leave(self, uid: str) -> bool:
        """The pod will not use the claim. Returns whether the call made a reservation that nothing needs then."""
        self.pods.pop(uid, None)
        self.users.discard(uid)
        reservation = self.reservation_of(uid)
        if reservation not in self.reserved:
            return False
        return uid not in self.groups or all(self.reservation_of(each) != reservation for each in self.users)

    @property
    def order(self) -> tuple[str, str]:
        """Sort key that is the same in every call."""
        return self.wanted.namespace, self.wanted.name

    def __str__(self) -> str:
        return f"ResourceClaim {quoted(self.wanted.name)}"


class Settled(Exception):
    """The attempt ends with an outcome."""

    def __init__(self, outcome: WriteOutcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome


class ClaimJob(Job):
    """Base of the jobs of one claim."""

    __slots__ = ("_claim", "_claims", "_conflicts")

    def __init__(self, claims: "DeviceClaims", claim: DeviceClaimWrites) -> None:
        super().__init__()
        self._claims, self._claim = claims, claim
        self._conflicts = 0

    async def attempt(self, timeout_seconds: float) -> WriteOutcome:
        try:
            return await self._attempt()
        except Settled as settled:
            return settled.outcome
        except KubeUnreachable as error:
            return unreachable_outcome(error)

    @abstractmethod
    async def _attempt(self) -> WriteOutcome:
        """Read the claim, and write it as its state requires. Raises KubeUnreachable, Settled."""

    @abstractmethod
    def _fail(self, reason: str) -> WriteOutcome:
        """Settle as failed. `reason`: a predicate of the claim."""

    @abstractmethod
    def _gone(self) -> WriteOutcome:
        """Settle: the claim does not exist."""

    async def _read(self) -> DeviceClaimState:
        """Raises KubeUnreachable, Settled."""
        return self._state(await self._request("GET"), "read")

    async def _write(self, status: bytes) -> DeviceClaimState:
        """The claim after a write of its status. Raises KubeUnreachable, Settled."""
        return self._state(await self._put(status), "written")

    async def _put(self, status: bytes) -> Response:
        """Raises KubeUnreachable, Settled."""
        self._check_open()
        return await self._request("PUT", "/status", status)

    async def _patch(self, body: bytes) -> Response:
        """A strategic merge patch of what is not the status. Raises KubeUnreachable, Settled."""
        self._check_open()
        return await self._request("PATCH", "", body, STRATEGIC_MERGE_PATCH)

    def _check_open(self) -> None:
        """Raises Settled."""
        if self._claims.flow.closed:
            raise Settled(Retry(f"{self._claim} was not written"))  # which the flow gives up

    async def _request(
        self, method: Method, subresource: str = "", body: bytes | None = None, content_type: str = JSON
    ) -> Response:
        wanted, claims = self._claim.wanted, self._claims
        path = object_path(_VERSION, "resourceclaims", wanted.namespace, wanted.name) + subresource
        seconds = claims.timeout_seconds
        return await claims.session.request(method, path, body=body, content_type=content_type, timeout_seconds=seconds)

    def _state(self, response: Response, verb: str) -> DeviceClaimState:
        """The claim in an answer. Raises Settled."""
        if response.status == 404:
            raise Settled(self._gone())
        if response.status == 409:  # it has changed since it was read
            self._conflicts += 1
            if self._conflicts < _MAX_CONFLICTS:
                raise Settled(Retry(status_text(response)))
        if response.status >= 300:
            raise Settled(retryable(response) or self._fail(f"cannot be {verb}: {status_text(response)}"))
        try:
            return read_claim(response.body)
        except BadDeviceClaim as error:
            raise Settled(self._fail(str(error))) from error

    def _done(self) -> WriteOutcome:
        self._claims.ended(self._claim)
        return DONE


class WriteDeviceClaim(ClaimJob):
    """Allocates a claim, if it is not yet, and reserves it for its pods."""

    __slots__ = ()

    def give_up(self, reason: str) -> None:
        self._reject(list(self._claim.pods), f"could not be written: {reason}")
        self._done()

    async def _attempt(self) -> WriteOutcome:
        claim = self._claim
        if not claim.pods:
            return self._done()
        found = await self._begin()
        for _ in range(_MAX_WRITES + 1):
            try:
                groups = {each.uid for each in claim.groups.values()}
                step = next_step(found, claim.wanted, claim.wanted_users, groups)
            except ClaimRejected as error:
                return self._fail(str(error))
            if step is Step.DONE:
                await self._report()
                return self._ready()
            found = await self._take(step, found)
            if not claim.pods:
                return self._done()
        return self._fail("was written, but the API server does not show what was")

    async def _begin(self) -> DeviceClaimState:
        """The claim; if devices are to be written, with the finalizer, unless its state does not permit that, and maybe
        allocated. Raises KubeUnreachable, Settled.
        """
        wanted = self._claim.wanted
        if wanted.devices is not None and not self._conflicts:
            if self._claims.protection.expect() and (found := await self._allocate_protected()) is not None:
                return found
            response = await self._patch(protection_patch(wanted.uid))
            if response.status not in (409, 422):  # another claim has the name; or it is being deleted
                return self._state(response, "written")
        return await self._read()

    async def _report(self) -> None:
        """Write what follows from the claim into objects. Raises KubeUnreachable, Settled."""

    async def _take(self, step: Step, found: DeviceClaimState) -> DeviceClaimState:
        """The claim after a step. Raises KubeUnreachable, Settled."""
        claim = self._claim
        if step is Step.PROTECT:
            return self._state(await self._patch(protection_patch(found.uid)), "written")
        if step is Step.DEALLOCATE:
            if bound := await self._bound(found):
                raise Settled(self._leave_to(bound, found))
            return await self._write(deallocated_claim(found))
        users = self._fitting(found)
        if not users:
            return found
        if step is Step.RESERVE:
            return await self._reserve(users, reserved_claim(found, users))
        body = allocated_claim(found, claim.wanted, users, time.time())
        return await self._reserve(users, body, allocates=True)

    async def _allocate_protected(self) -> DeviceClaimState | None:
        """The claim, allocated without knowing its state; None if that is not the one of a new claim with the
        finalizer, or permission is missing. Raises KubeUnreachable, Settled.
        """
        users = list(self._claim.wanted_users.values())
        if len(users) > MAX_RESERVED_FOR:
            return None
        self._check_open()
        body = first_allocation_patch(self._claim.wanted, users, time.time())
        response = await self._reserving(users, self._request("PATCH", "/status", body, JSON_PATCH), allocates=True)
        if response.status in (403, 409, 422):
            self._claims.protection.observe(protected=False)
            return None
        found = self._state(response, "written")
        self._claims.protection.observe(protected=True)
        return found

    async def _reserve(self, users: Collection[Consumer], body: bytes, *, allocates: bool = False) -> DeviceClaimState:
        """Write reservations for users that have none. Raises KubeUnreachable, Settled."""
        return self._state(await self._reserving(users, self._put(body), allocates=allocates), "written")

    async def _reserving(
        self, users: Collection[Consumer], request: Awaitable[Response], *, allocates: bool
    ) -> Response:
        """The answer to a request that writes reservations; notes what has to be removed if the pods are not bound.
        Raises KubeUnreachable, Settled.
        """
        claim, before = self._claim, (self._claim.reserved, self._claim.allocated)
        claim.reserved = claim.reserved | {each.uid for each in users}
        claim.allocated |= allocates
        response = await request
        if response.status >= 300 and is_certain(response):
            claim.reserved, claim.allocated = before
        return response

    def _fitting(self, found: DeviceClaimState) -> list[Consumer]:
        """Pods, or their PodGroup, to reserve the claim for; those above the limit fail."""
        users = self._claim.wanted_users
        missing = unreserved(found, users)
        free = max(0, MAX_RESERVED_FOR - len(found.consumers))
        if over := missing[free:]:
            limit = f"would be reserved for more than {MAX_RESERVED_FOR} pods, which the API server rejects"
            rejected = [uid for uid in self._claim.pods if self._claim.reservation_of(uid) in over]
            self._reject(rejected, f"{limit}: divide its pods among several claims")
        return [users[uid] for uid in missing[:free]]

    async def _bound(self, found: DeviceClaimState) -> set[str]:
        """Uids of the pods that use the claim and are bound, by an earlier call. Raises KubeUnreachable, Settled."""
        bound = set()
        for uid in [each.uid for each in found.consumers]:
            pod = self._claim.pods.get(uid)
            if pod is None:
                continue
            path = pod_path(pod.namespace, pod.name)
            response = await self._claims.session.request("GET", path, timeout_seconds=self._claims.timeout_seconds)
            if response.status == 404:
                continue
            if response.status != 200:
                problem = f"is used by pod {quoted(pod.name)}, which cannot be read: {status_text(response)}"
                raise Settled(retryable(response) or self._fail(problem))
            try:
                current = decode_pod(response.body)
            except BadObject as error:
                raise Settled(self._fail(f"is used by a pod that cannot be read: {error}")) from error
            if current.metadata.uid == uid and current.spec.node_name:
                bound.add(uid)
        return bound

    def _leave_to(self, bound: Collection[str], found: DeviceClaimState) -> WriteOutcome:
        """Leave the claim as it is for its bound pods, whose binds tell where they are; the others cannot use it."""
        users = [each for each in found.consumers if each.uid in bound]
        for uid in [uid for uid in self._claim.pods if uid in bound]:
            self._claims.written(self._claim, uid)
        return self._fail(used_by(found, users))

    def _ready(self) -> WriteOutcome:
        for uid in list(self._claim.pods):
            self._claims.written(self._claim, uid)
        return self._done()

    def _gone(self) -> WriteOutcome:
        return self._fail("does not exist")

    def _fail(self, reason: str) -> WriteOutcome:
        self._reject(list(self._claim.pods), reason)
        return self._done()

    def _reject(self, uids: Collection[str], reason: str) -> None:
        for uid in uids:
            self._claims.rejected(self._claim, uid, f"{self._claim} {reason}")


class ReleaseDeviceClaim(ClaimJob):
    """Removes the reservations of pods that are not bound, and the allocation if the call wrote it, with the last."""

    __slots__ = ()

    def give_up(self, reason: str) -> None:
        self._end(frozenset(self._claim.leaving), f"{self._claim} may stay allocated: {reason}")

    async def _attempt(self) -> WriteOutcome:
        claim, uids = self._claim, frozenset(self._claim.leaving)
        found = await self._read()
        if found.uid != claim.wanted.uid:
            return self._gone()
        users = {claim.reservation_of(uid) for uid in uids}
        body = released_claim(found, users, claim.wanted.devices if claim.allocated else None)
        if body is not None:
            await self._write(body)
        return self._end(uids, "")

    def _gone(self) -> WriteOutcome:
        return self._end(frozenset(self._claim.leaving), "")

    def _fail(self, reason: str) -> WriteOutcome:
        return self._end(frozenset(self._claim.leaving), f"{self._claim} may stay allocated: it {reason}")

    def _end(self, uids: frozenset[str], problem: str) -> WriteOutcome:
        for uid in uids:
            self._claim.leaving.discard(uid)
            self._claims.released(uid, problem)
        return self._done()
