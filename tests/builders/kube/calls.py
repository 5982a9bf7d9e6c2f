"""Writes to an API server, for tests."""

from typing import Any

import msgspec

from builders.wait import eventually
from muster.kube.session import ApiStatusError, KubeSession, Method

Object = dict[str, Any]

_SECONDS = 60.0
_KINDS = {
    "Pod": "/api/v1/namespaces/{namespace}/pods",
    "Node": "/api/v1/nodes",
    "Namespace": "/api/v1/namespaces",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "Event": "/api/v1/namespaces/{namespace}/events",
    "ResourceQuota": "/api/v1/namespaces/{namespace}/resourcequotas",
    "Job": "/apis/batch/v1/namespaces/{namespace}/jobs",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
    "PodGroup": "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{namespace}/podgroups",
    "NativePodGroup": "/apis/scheduling.k8s.io/v1beta1/namespaces/{namespace}/podgroups",
    "PersistentVolumeClaim": "/api/v1/namespaces/{namespace}/persistentvolumeclaims",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
    "ResourceSlice": "/apis/resource.k8s.io/v1/resourceslices",
    "DeviceTaintRule": "/apis/resource.k8s.io/v1beta2/devicetaintrules",
    "ResourceClaim": "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims",
    "ResourceClaimTemplate": "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates",
}
_VERSIONS = {
    "Job": "batch/v1",
    "PriorityClass": "scheduling.k8s.io/v1",
    "CustomResourceDefinition": "apiextensions.k8s.io/v1",
    "PodDisruptionBudget": "policy/v1",
    "PodGroup": "scheduling.x-k8s.io/v1alpha1",
    "StorageClass": "storage.k8s.io/v1",
    "DeviceClass": "resource.k8s.io/v1",
    "ResourceSlice": "resource.k8s.io/v1",
    "ResourceClaim": "resource.k8s.io/v1",
    "ResourceClaimTemplate": "resource.k8s.io/v1",
}


class KubeCalls:
    """Creates, patches and deletes objects by kind and name. Raises ApiStatusError."""

    def __init__(self, session: KubeSession) -> None:
        self._session = session

    async def create(self, kind: str, each: Object, namespace: str = "ml") -> Object:
        body = {"apiVersion": _VERSIONS.get(kind, "v1"), "kind": kind, **each}
        return await self._call("POST", _path(kind, namespace), body)

    async def patch(self, kind: str, name: str, change: Object, namespace: str = "ml", part: str = "") -> Object:
        """Send a merge patch; `part` is a subresource such as "/status"."""
        path = f"{_path(kind, namespace)}/{name}{part}"
        return await self._call("PATCH", path, change, "application/merge-patch+json")

    async def delete(self, kind: str, name: str, namespace: str = "ml", *, grace_seconds: int = 0) -> Object:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": grace_seconds}
        return await self._call("DELETE", f"{_path(kind, namespace)}/{name}", options)

    async def bind(self, name: str, node: str, namespace: str = "ml") -> Object:
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
        target = {"target": {"apiVersion": "v1", "kind": "Node", "name": node}}
        return await self._call("POST", f"{_path('Pod', namespace)}/{name}/binding", binding | target)

    async def served(self, kind: str, namespace: str = "ml") -> None:
        """Wait until a kind is served."""
        await eventually(lambda: self.is_served(kind, namespace), f"{kind} is served", seconds=_SECONDS)

    async def is_served(self, kind: str, namespace: str = "ml") -> bool:
        """Whether a kind is served."""
        path = _path(kind, namespace)
        return (await self._session.request("GET", path, timeout_seconds=_SECONDS)).status == 200

    async def fault(self, **fault: Any) -> None:
        """Inject a fault into the embedded API server; see its module `faults`."""
        await self._call("POST", "/muster-faults", fault)

    async def end_faults(self) -> None:
        """Remove all faults."""
        await self._call("DELETE", "/muster-faults", {})

    async def lever(self, name: str) -> None:
        """ "cut-watches", "compact" or "bookmarks", at once."""
        await self._call("POST", f"/muster-faults/{name}", {})

    async def _call(self, method: Method, path: str, body: Object, content_type: str = "application/json") -> Object:
        response = await self._session.request(
            method, path, body=msgspec.json.encode(body), content_type=content_type, timeout_seconds=_SECONDS
        )
        if response.status >= 300:
            raise ApiStatusError.from_response(response)
        return msgspec.json.decode(response.body)  # type: ignore[no-any-return]


def _path(kind: str, namespace: str) -> str:
    return _KINDS[kind].format(namespace=namespace)
