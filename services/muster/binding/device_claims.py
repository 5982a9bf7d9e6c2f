"""ResourceClaims of the pods of a Bind call: allocates and reserves each once, for all its pods, before they are bound,
and removes what the call wrote for pods that were not bound.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog
from msgspec import Struct

from muster.binding.device_claim_jobs import DeviceClaimWrites, ReleaseDeviceClaim, WriteDeviceClaim
from muster.binding.device_claim_status import WantedClaim, pod_group, read_allocation
from muster.binding.extended_claim_jobs import DeleteExtendedClaim, WriteExtendedClaim
from muster.binding.extended_claims import Creation, claim_name
from muster.binding.pipeline import Flow
from muster.binding.shared_claim_state import SharedClaimState
from muster.binding.v1 import binding_pb2 as pb
from muster.kube.session import KubeSession

_log: Final = structlog.get_logger()


class _Release(Struct):
    """The removal of a pod's reservations. `claims`: the number of claims that are not settled yet."""

    ended: Callable[[str], None]
    claims: int
    problem: str = ""


class DeviceClaims:
    """The ResourceClaims of all pods of one call, until its end (I11)."""

    def __init__(
        self,
        pods: Sequence[pb.PodBinding],
        session: KubeSession,
        shared: SharedClaimState,
        flow: Flow,
        *,
        ready: Callable[[str], None],
        failed: Callable[[str, str], None],
    ) -> None:
        """`ready` is called with the uid of a pod when all its claims are allocated and reserved for it, `failed` with
        the uid and the reason when one cannot be; exactly one of them for every pod that has claims, unless it is
        released before.

        The claims are validated: see `muster.binding.validation.validate_bind`.
        """
        self.session, self.flow = session, flow
        self._owners, self.protection = shared.owners, shared.protection
        self._loop = asyncio.get_running_loop()
        self._ready, self._failed = ready, failed
        self._claims = _claims_of(pods)
        self._of_pod: dict[str, list[DeviceClaimWrites]] = {}
        for claim in self._claims:
            for uid in claim.pods:
                self._of_pod.setdefault(uid, []).append(claim)
        self._missing = {uid: len(claims) for uid, claims in self._of_pod.items()}
        self._releases: dict[str, _Release] = {}
        self._checks: set[asyncio.Task[None]] = set()
        """Until they end."""

    @property
    def timeout_seconds(self) -> float:
        """Time that a request that is sent now may take."""
        return self.flow.attempt_timeout(self._loop.time())

    def start(self) -> None:
        """Start the jobs of all claims."""
        if self._claims:
            self._owners.start()
        for claim in self._claims:
            claim.busy = True
        self.flow.add(
            [
                WriteExtendedClaim(self, claim) if claim.creation is not None else WriteDeviceClaim(self, claim)
                for claim in sorted(self._claims, key=lambda each: each.order)
            ]
        )

    def check(self, uids: Sequence[str], failed: Callable[[str, str], None], checked: Callable[[], None]) -> None:
        """Look for other claims that have devices of the claims of these pods, which are ready: calls `failed` with the
        uid and the reason for pods with such a claim, then `checked`.
        """
        claims = {each.wanted.uid: each for uid in uids for each in self._of_pod.get(uid, ()) if each.wanted.devices}
        if not claims:
            checked()
            return
        task = self._loop.create_task(self._check(uids, claims, failed, checked))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)

    async def _check(
        self,
        uids: Sequence[str],
        claims: Mapping[str, DeviceClaimWrites],
        failed: Callable[[str, str], None],
        checked: Callable[[], None],
    ) -> None:
        wanted = {uid: [each.name for each in claim.wanted.devices or ()] for uid, claim in claims.items()}
        reasons = await self._owners.taken(wanted)
        for uid in uids if reasons else ():
            for claim in self._of_pod.get(uid, ()):
                if reason := reasons.get(claim.wanted.uid):
                    failed(uid, f"{claim} {reason}")
                    break
        checked()

    def release(self, uid: str, ended: Callable[[str], None]) -> None:
        """Remove what the call wrote for a pod that is not bound and will not be. `ended` is called with the reason why
        claims remain reserved for it; empty: none does.
        """
        self._missing.pop(uid, None)
        claims = self._of_pod.pop(uid, [])
        written = [claim for claim in claims if claim.leave(uid)]
        if not written:
            ended("")
            return
        self._releases[uid] = _Release(ended, len(written))
        for claim in written:
            claim.leaving.add(uid)
            if not claim.busy:
                self._start_release(claim)

    def written(self, claim: DeviceClaimWrites, uid: str) -> None:
        """The claim is allocated and reserved for the pod, or the pod is bound already."""
        del claim.pods[uid]
        missing = self._missing.pop(uid) - 1
        if missing:
            self._missing[uid] = missing
        else:
            self._ready(uid)

    def rejected(self, claim: DeviceClaimWrites, uid: str, reason: str) -> None:
        """The pod cannot use the claim."""
        claim.pods.pop(uid, None)
        if self._missing.pop(uid, None) is not None:
            self._failed(uid, reason)

    def released(self, uid: str, problem: str) -> None:
        """The reservation of the pod is removed from one claim, or cannot be."""
        release = self._releases[uid]
        release.claims -= 1
        release.problem = release.problem or problem
        if problem:
            _log.warning("device_claim_not_released", uid=uid, message=problem)
        if not release.claims:
            del self._releases[uid]
            release.ended(release.problem)

    def ended(self, claim: DeviceClaimWrites) -> None:
        """The job of a claim has ended."""
        claim.busy = False
        if claim.leaving:
            self._start_release(claim)

    def _start_release(self, claim: DeviceClaimWrites) -> None:
        claim.busy = True
        extended = claim.creation is not None
        self.flow.add([DeleteExtendedClaim(self, claim) if extended else ReleaseDeviceClaim(self, claim)])


def has_device_claims(pod: pb.PodBinding) -> bool:
    """Whether the pod has ResourceClaims that are written before it is bound."""
    return bool(pod.device_claims) or pod.HasField("extended_claim")


def _extended_claim_of(pod: pb.PodBinding) -> DeviceClaimWrites:
    given = pod.extended_claim
    wanted = WantedClaim(pod.namespace, claim_name(pod.name, pod.uid), "", *read_allocation(given.allocation))
    claim = DeviceClaimWrites(wanted, Creation.of(pod))
    claim.pods = {pod.uid: pod}
    return claim


def _claims_of(pods: Sequence[pb.PodBinding]) -> list[DeviceClaimWrites]:
    """The claims of the pods. Those that pods share have the allocation that one of them gives."""
    given: dict[tuple[str, str], list[tuple[pb.PodBinding, pb.DeviceClaim]]] = {}
    for pod in pods:
        for each in pod.device_claims:
            given.setdefault((pod.namespace, each.name), []).append((pod, each))
    claims = [_claim_of(namespace, name, of) for (namespace, name), of in given.items()]
    return claims + [_extended_claim_of(pod) for pod in pods if pod.HasField("extended_claim")]


def _claim_of(namespace: str, name: str, given: list[tuple[pb.PodBinding, pb.DeviceClaim]]) -> DeviceClaimWrites:
    uid = given[0][1].uid
    wanted = WantedClaim(namespace, name, uid)
    if allocation := next((each.allocation for _, each in given if each.allocation), b""):
        wanted = WantedClaim(namespace, name, uid, *read_allocation(allocation))
    claim = DeviceClaimWrites(wanted)
    claim.pods = {pod.uid: pod for pod, _ in given}
    claim.groups = {pod.uid: pod_group(each.group_name, each.group_uid) for pod, each in given if each.group_uid}
    claim.users = set(claim.pods)
    return claim
