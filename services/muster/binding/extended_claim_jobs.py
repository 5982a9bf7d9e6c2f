"""The writes of a Bind call to the ResourceClaim for a pod's extended resources: created, allocated and reserved before
the pod is bound, and deleted after it could not be.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

from muster.binding.device_claim_jobs import ClaimJob, Settled, WriteDeviceClaim
from muster.binding.device_claim_status import FINALIZER, DeviceClaimState, unprotection_patch
from muster.binding.extended_claims import Creation
from muster.binding.request_bodies import MERGE_PATCH
from muster.binding.retry_policy import Retry, WriteOutcome, retryable, status_text
from muster.gangs.quoting import quoted
from muster.kube.paths import object_path, pod_path
from muster.kube.responses import Response

_VERSION: Final = "resource.k8s.io/v1"


class _ExtendedClaimJob(ClaimJob):
    """Base of the jobs of such a claim."""

    __slots__ = ()

    @property
    def _creation(self) -> Creation:
        assert self._claim.creation is not None
        return self._claim.creation

    async def _patch_pod(self, claim: str) -> Response:
        """Write the claim's name into the pod's status; empty: remove it. Raises KubeUnreachable."""
        creation, claims = self._creation, self._claims
        path = pod_path(creation.pod_namespace, creation.pod_name) + "/status"
        body, seconds = creation.status_patch(claim), claims.timeout_seconds
        return await claims.session.request("PATCH", path, body=body, content_type=MERGE_PATCH, timeout_seconds=seconds)

    async def _delete(self, found: DeviceClaimState) -> None:
        """Delete the claim, whose finalizer would prevent it. Raises KubeUnreachable, Settled."""
        if FINALIZER in found.finalizers:
            self._state(await self._patch(unprotection_patch(found.uid)), "written")
        preconditions = msgspec.json.encode({"preconditions": {"uid": found.uid}})
        response = await self._request("DELETE", "", preconditions)
        if response.status >= 300 and response.status not in (404, 409):  # 409: another claim has the name
            problem = f"cannot be deleted: {status_text(response)}"
            raise Settled(retryable(response) or self._fail(problem))


class WriteExtendedClaim(_ExtendedClaimJob, WriteDeviceClaim):
    """Creates the claim, allocates it and reserves it for its pod, and writes its name into the pod's status."""

    __slots__ = ()

    async def _begin(self) -> DeviceClaimState:
        claim = self._claim
        if claim.wanted.uid:
            return await self._read()
        found = await self._create()
        if not self._creation.is_of(found.fields["metadata"]):
            raise Settled(self._fail("exists, and was not created for the extended resources of the pod: delete it"))
        if not self._creation.has_spec(found.fields["spec"]):
            await self._delete(found)
            raise Settled(Retry(f"{claim} of an earlier placement was deleted"))
        claim.wanted = replace(claim.wanted, uid=found.uid)
        return found

    async def _create(self) -> DeviceClaimState:
        """The claim, which may exist. Raises KubeUnreachable, Settled."""
        claims, wanted = self._claims, self._claim.wanted
        if claims.flow.closed:
            raise Settled(Retry(f"{self._claim} was not created"))  # which the flow gives up
        self._claim.reserved = self._claim.reserved | {self._creation.pod_uid}  # it is to be deleted again
        path = object_path(_VERSION, "resourceclaims", wanted.namespace)
        body, seconds = self._creation.body, claims.timeout_seconds
        response = await claims.session.request("POST", path, body=body, timeout_seconds=seconds)
        if response.status == 409:
            response = await self._request("GET")
            if response.status == 404:  # it was deleted in the meantime
                raise Settled(Retry(f"{self._claim} was deleted"))
        return self._state(response, "created")

    async def _report(self) -> None:
        response = await self._patch_pod(self._claim.wanted.name)
        if response.status >= 300:
            problem = f"cannot be written into the status of pod {quoted(self._creation.pod_name)}"
            raise Settled(retryable(response) or self._fail(f"{problem}: {status_text(response)}"))


class DeleteExtendedClaim(_ExtendedClaimJob):
    """Deletes the claim of a pod that is not bound, and removes its name from the pod's status."""

    __slots__ = ()

    def give_up(self, reason: str) -> None:
        self._end(f"{self._claim} may stay allocated: {reason}")

    async def _attempt(self) -> WriteOutcome:
        found = await self._read()
        if not self._creation.is_of(found.fields["metadata"]):
            return self._gone()
        response = await self._patch_pod("")
        if response.status >= 300 and response.status not in (
            404,
            409,
            422,
        ):  # the pod is gone, or another has its name
            raise Settled(retryable(response) or self._fail(f"is named by the pod: {status_text(response)}"))
        await self._delete(found)
        return self._end("")

    def _gone(self) -> WriteOutcome:
        return self._end("")

    def _fail(self, reason: str) -> WriteOutcome:
        return self._end(f"{self._claim} may stay allocated: it {reason}")

    def _end(self, problem: str) -> WriteOutcome:
        for uid in list(self._claim.leaving):
            self._claim.leaving.discard(uid)
            self._claims.released(uid, problem)
        return self._done()
