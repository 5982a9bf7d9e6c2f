"""All claims that the pods of a Bind call wait for: PersistentVolumeClaims and ResourceClaims, at the same time."""

from collections.abc import Callable, Sequence

from muster.binding.device_claims import DeviceClaims, has_device_claims
from muster.binding.pipeline import Flow
from muster.binding.shared_claim_state import SharedClaimState
from muster.binding.v1 import binding_pb2 as pb
from muster.binding.volume_claims import VolumeClaims
from muster.kube.session import KubeSession


class PodClaims:
    """The claims of all pods of one call."""

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
        """`ready` is called with the uid of a pod when all its claims are, `failed` with the uid and the reason when
        one cannot be; exactly one of them for every pod that has claims, unless it is released before.
        """
        self._ready, self._failed = ready, failed
        self._missing = {pod.uid: bool(pod.claims) + has_device_claims(pod) for pod in pods if has_claims(pod)}
        ready, failed = self._kind_ready, self._kind_failed
        self._volumes = VolumeClaims(pods, session, shared.volumes, flow, ready=ready, failed=failed)
        self._devices = DeviceClaims(pods, session, shared, flow, ready=ready, failed=failed)

    def start(self, deadline: float) -> None:
        """Start the jobs of all claims. `deadline`: the deadline of the flow."""
        self._devices.start()
        self._volumes.provision(deadline)

    def check(self, uids: Sequence[str], checked: Callable[[], None]) -> None:
        """Look for other claims that have devices of these pods, whose claims are ready. Pods for which there are some
        have failed when `checked` is called.
        """
        self._devices.check(uids, self._failed, checked)

    def release(self, uid: str, ended: Callable[[str], None]) -> None:
        """Remove what the call wrote to the ResourceClaims of a pod that is not bound and will not be. `ended` is
        called with the reason why claims remain reserved for it; empty: none does.
        """
        self._missing.pop(uid, None)
        self._devices.release(uid, ended)

    def _kind_ready(self, uid: str) -> None:
        missing = self._missing.pop(uid, 0) - 1
        if missing > 0:
            self._missing[uid] = missing
        elif missing == 0:
            self._ready(uid)

    def _kind_failed(self, uid: str, reason: str) -> None:
        if self._missing.pop(uid, None) is not None:
            self._failed(uid, reason)


def has_claims(pod: pb.PodBinding) -> bool:
    """Whether the pod waits for claims before it is bound."""
    return bool(pod.claims) or has_device_claims(pod)
