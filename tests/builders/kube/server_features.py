"""Features of the API server of end-to-end tests: a real one may lack a cluster's controllers."""

from dataclasses import dataclass
from typing import Final

import msgspec
import pytest

from builders.wait import eventually
from muster.kube.session import ApiStatusError, KubeSession

NATIVE_VERSIONS: Final = ("v1beta1", "v1alpha3", "v1alpha2")
"""Versions of scheduling.k8s.io, the newest first."""

_NAMESPACES: Final = "/api/v1/namespaces"
_CALL_SECONDS: Final = 60.0
_CONTROLLER_SECONDS: Final = 15.0
"""Longest wait for a controller that may not run."""

_controllers: dict[str, bool] = {}
"""Whether controllers run, by address of the server; as many entries as servers that one test run uses."""


@dataclass(frozen=True)
class ApiServer:
    """Features of the API server; the embedded one has all."""

    is_real: bool = False
    has_controllers: bool = True
    """Kubernetes' controllers run: jobs, volumes, garbage collection, quotas and budgets."""
    native_versions: tuple[str, ...] = NATIVE_VERSIONS
    """API version of native PodGroups; none: their feature gate is off."""
    dropped_fields: tuple[str, ...] = ()
    """Fields of native PodGroups that are missing because further gates are off."""

    def needs_controllers(self) -> None:
        """Skip the test without controllers."""
        if not self.has_controllers:
            pytest.skip("no kube-controller-manager runs beside this API server")

    def needs_native(self) -> None:
        """Skip the test without PodGroups of scheduling.k8s.io or the controller of their finalizers."""
        if not self.native_versions:
            pytest.skip("this API server serves no PodGroups of scheduling.k8s.io: its feature gates are off")
        if self.dropped_fields:
            fields = " and ".join(self.dropped_fields)
            pytest.skip(f"this API server drops {fields} of PodGroups of scheduling.k8s.io: feature gates are off")
        self.needs_controllers()


async def api_server(session: KubeSession, *, is_real: bool) -> ApiServer:
    """Detect the features of a server."""
    if not is_real:
        return ApiServer()
    versions = await _native_versions(session)
    dropped = await _dropped_fields(session, versions[0]) if versions else ()
    return ApiServer(True, await _has_controllers(session), versions, dropped)


async def _has_controllers(session: KubeSession) -> bool:
    """Whether a controller gives a new namespace its service account; asked once for each server."""
    if session.server not in _controllers:
        _controllers[session.server] = await _new_namespace_gets_service_account(session)
    return _controllers[session.server]


async def _new_namespace_gets_service_account(session: KubeSession) -> bool:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "controllers-"}}
    answer = await session.request("POST", _NAMESPACES, body=msgspec.json.encode(body), timeout_seconds=_CALL_SECONDS)
    if answer.status != 201:
        raise ApiStatusError.from_response(answer)
    path = f"{_NAMESPACES}/{msgspec.json.decode(answer.body)['metadata']['name']}"

    async def has_account() -> bool:
        account = await session.request("GET", f"{path}/serviceaccounts/default", timeout_seconds=_CALL_SECONDS)
        return account.status == 200

    try:
        return await eventually(has_account, seconds=_CONTROLLER_SECONDS, every_seconds=0.1)
    except AssertionError:
        return False
    finally:
        await session.request("DELETE", path, timeout_seconds=_CALL_SECONDS)


async def _native_versions(session: KubeSession) -> tuple[str, ...]:
    served = []
    for version in NATIVE_VERSIONS:
        path = f"/apis/scheduling.k8s.io/{version}/podgroups"
        answer = await session.request("GET", path, query={"limit": "1"}, timeout_seconds=_CALL_SECONDS)
        if answer.status == 200:
            served.append(version)
    return tuple(served)


async def _dropped_fields(session: KubeSession, version: str) -> tuple[str, ...]:
    """Fields with their own feature gate, detected by creating a PodGroup: priority is defaulted if the gate is on."""
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
