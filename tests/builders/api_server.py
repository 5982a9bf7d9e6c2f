"""What the API server of end-to-end tests has: a real one may be bare, without the controllers that a cluster has."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
import pytest

from muster.kube.session import KubeSession

NATIVE_VERSIONS: Final = ("v1beta1", "v1alpha3", "v1alpha2")
"""Of scheduling.k8s.io, the newest first."""

_LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager"
_CALL_SECONDS: Final = 20.0


@dataclass(frozen=True)
class ApiServer:
    """The embedded one has everything."""

    is_real: bool = False
    has_controllers: bool = True
    """Jobs get their pods, garbage is collected, quotas and budgets are counted."""
    native_versions: tuple[str, ...] = NATIVE_VERSIONS
    """In which it serves Kubernetes' own PodGroups; none: their feature gate is off."""

    def needs_controllers(self) -> None:
        """Skip the test where there are none."""
        if not self.has_controllers:
            pytest.skip("no kube-controller-manager runs beside this API server")

    def needs_volumes(self) -> None:
        """Skip the test where nobody makes volumes for claims."""
        if self.is_real:
            pytest.skip("a real API server has no provisioner that makes volumes")

    def needs_native(self) -> None:
        """Skip the test where there are no PodGroups of scheduling.k8s.io, or nobody lets them go."""
        if not self.native_versions:
            pytest.skip("this API server serves no PodGroups of scheduling.k8s.io: its feature gates are off")
        self.needs_controllers()


async def api_server(session: KubeSession, *, is_real: bool) -> ApiServer:
    """What is there."""
    if not is_real:
        return ApiServer()
    return ApiServer(True, await _has_controllers(session), await _native_versions(session))


async def _has_controllers(session: KubeSession) -> bool:
    answer = await session.request("GET", _LEASE, timeout_seconds=_CALL_SECONDS)
    if answer.status != 200:
        return False
    spec = msgspec.json.decode(answer.body)["spec"]
    renewed = datetime.fromisoformat(spec["renewTime"])
    return datetime.now(UTC) - renewed < timedelta(seconds=spec["leaseDurationSeconds"])


async def _native_versions(session: KubeSession) -> tuple[str, ...]:
    served = []
    for version in NATIVE_VERSIONS:
        path = f"/apis/scheduling.k8s.io/{version}/podgroups"
        answer = await session.request("GET", path, query={"limit": "1"}, timeout_seconds=_CALL_SECONDS)
        if answer.status == 200:
            served.append(version)
    return tuple(served)
