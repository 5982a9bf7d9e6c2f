"""What the API server of end-to-end tests has: a real one may be bare, without the controllers that a cluster has."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
import pytest

from muster.kube.session import ApiStatusError, KubeSession

NATIVE_VERSIONS: Final = ("v1beta1", "v1alpha3", "v1alpha2")
"""Of scheduling.k8s.io, the newest first."""

_LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager"
_CALL_SECONDS: Final = 20.0


@dataclass(frozen=True)
class ApiServer:
    """The embedded one has everything."""

    is_real: bool = False
    has_controllers: bool = True
    """Jobs get their pods, claims their volumes, garbage is collected, quotas and budgets are counted."""
    native_versions: tuple[str, ...] = NATIVE_VERSIONS
    """In which it serves Kubernetes' own PodGroups; none: their feature gate is off."""
    dropped_fields: tuple[str, ...] = ()
    """Of these PodGroups, because further gates are off."""

    def needs_controllers(self) -> None:
        """Skip the test where there are none."""
        if not self.has_controllers:
            pytest.skip("no kube-controller-manager runs beside this API server")

    def needs_volumes(self) -> None:
        """Skip the test where no controller binds claims to the volumes that the tests' provisioner makes."""
        self.needs_controllers()

    def needs_native(self) -> None:
        """Skip the test where there are no PodGroups of scheduling.k8s.io, or nobody lets them go."""
        if not self.native_versions:
            pytest.skip("this API server serves no PodGroups of scheduling.k8s.io: its feature gates are off")
        if self.dropped_fields:
            fields = " and ".join(self.dropped_fields)
            pytest.skip(f"this API server drops {fields} of PodGroups of scheduling.k8s.io: feature gates are off")
        self.needs_controllers()


async def api_server(session: KubeSession, *, is_real: bool) -> ApiServer:
    """What is there."""
    if not is_real:
        return ApiServer()
    versions = await _native_versions(session)
    dropped = await _dropped_fields(session, versions[0]) if versions else ()
    return ApiServer(True, await _has_controllers(session), versions, dropped)


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


async def _dropped_fields(session: KubeSession, version: str) -> tuple[str, ...]:
    """What has a gate of its own and is not in the answer to a PodGroup: a priority is filled in where there is one."""
    constraints = {"topology": [{"key": "example.com/rack"}]}
    group = {
        "apiVersion": f"scheduling.k8s.io/{version}",
        "kind": "PodGroup",
        "metadata": {"generateName": "kept-"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}, "schedulingConstraints": constraints},
    }
    answer = await session.request(
        "POST",
        f"/apis/scheduling.k8s.io/{version}/namespaces/default/podgroups",
        query={"dryRun": "All"},
        body=msgspec.json.encode(group),
        timeout_seconds=_CALL_SECONDS,
    )
    if answer.status != 201:
        raise ApiStatusError.from_response(answer)
    kept = msgspec.json.decode(answer.body)["spec"]
    return tuple(field for field in ("schedulingConstraints", "priority") if field not in kept)
