"""Binds claims to volumes that the coordinator chose: reserves the volume for its claim (spec.claimRef), then waits
until the volume controller has bound the two.

    state of the volume                         action
    reserved for no claim                       reserve it for this one, unless it has changed since it was read
    reserved for this claim                     wait
    reserved for another claim, or ended        FAILED: the coordinator chooses another one
    missing                                     FAILED

A claim that is bound already, to whichever volume, is settled as in `muster.binding.volume_claims`. A volume that was
reserved by the call is given back if its claim is not bound at the end.
"""

from typing import TYPE_CHECKING, Final

from muster.binding.claim_jobs import ClaimJob
from muster.binding.request_bodies import MERGE_PATCH, claim_ref_patch, no_claim_ref_patch
from muster.binding.retry_policy import WriteOutcome
from muster.binding.v1 import binding_pb2 as pb
from muster.gangs.quoting import quoted
from muster.kube.objects import BadObject
from muster.kube.paths import volume_path
from muster.kube.volume_facts import PersistentVolume, PersistentVolumeClaim, decode_volume

if TYPE_CHECKING:
    from muster.binding.volume_claims import VolumeClaims

_AVAILABLE: Final = "Available"


class BindStaticClaim(ClaimJob):
    """Reserves the chosen volume for a claim, and waits until they are bound."""

    __slots__ = ("_volume", "_written")

    def __init__(
        self, claims: "VolumeClaims", namespace: str, name: str, pods: list[pb.PodBinding], volume: str
    ) -> None:
        super().__init__(claims, namespace, name, pods)
        self._volume = volume
        self._written = False

    async def _request_volume(self, claim: PersistentVolumeClaim, timeout_seconds: float) -> WriteOutcome:
        volume = await self._read_volume(timeout_seconds)
        if not isinstance(volume, PersistentVolume):
            return volume
        reference = volume.spec.claim_ref
        if reference is None and volume.status.phase == _AVAILABLE:
            return await self._reserve(claim, volume, timeout_seconds)
        if reference is not None:
            if (reference.namespace, reference.name) != (self._namespace, self._name):
                return self._fail(f"{self._chosen} was taken by claim {reference.namespace}/{reference.name}")
            if reference.uid in (None, "", claim.metadata.uid) and volume.status.phase not in ("Released", "Failed"):
                return await self._wait(claim, timeout_seconds)
        return self._fail(f"{self._chosen} is not available: its phase is {volume.status.phase}")

    async def _last_words(self, claim: PersistentVolumeClaim, timeout_seconds: float) -> str:
        if self._written:
            await self._give_back(timeout_seconds)
        return await super()._last_words(claim, timeout_seconds)

    async def _read_volume(self, timeout_seconds: float) -> PersistentVolume | WriteOutcome:
        """Raises KubeUnreachable."""
        response = await self._claims.session.request("GET", volume_path(self._volume), timeout_seconds=timeout_seconds)
        if response.status == 404:
            return self._fail(f"{self._chosen} does not exist")
        if response.status != 200:
            return self._refused(response)
        try:
            return decode_volume(response.body)
        except BadObject as error:
            return self._fail(str(error))

    async def _reserve(
        self, claim: PersistentVolumeClaim, volume: PersistentVolume, timeout_seconds: float
    ) -> WriteOutcome:
        """Raises KubeUnreachable."""
        self._subscribe(claim.metadata.uid)
        of_claim, of_volume = claim.metadata, volume.metadata
        response = await self._claims.session.request(
            "PATCH",
            volume_path(self._volume),
            body=claim_ref_patch(of_volume.uid, of_volume.resource_version, self._namespace, self._name, of_claim.uid),
            content_type=MERGE_PATCH,
            timeout_seconds=timeout_seconds,
        )
        if response.status in (409, 422):  # the volume has changed: read it again
            return self._conflict(response)
        if response.status >= 300:
            return self._refused(response)
        self._written = True
        return await self._wait(claim, timeout_seconds)

    async def _give_back(self, timeout_seconds: float) -> None:
        """Raises KubeUnreachable."""
        volume = await self._read_volume(timeout_seconds)
        if not isinstance(volume, PersistentVolume) or volume.status.phase != _AVAILABLE:
            return
        await self._claims.session.request(
            "PATCH",
            volume_path(self._volume),
            body=no_claim_ref_patch(volume.metadata.uid, volume.metadata.resource_version),
            content_type=MERGE_PATCH,
            timeout_seconds=timeout_seconds,
        )

    @property
    def _chosen(self) -> str:
        return f"PersistentVolume {quoted(self._volume)}, which was chosen for {self._what},"
