"""Devices of the bench's nodes, and gangs of which each pod claims one, for comparison with an extended resource."""

from typing import Any, Final

import msgspec

from builders.deploy.admission_policies import policies_and_bindings
from builders.gangs.manifests import Workload
from builders.wait import eventually
from muster.kube.session import KubeSession
from muster.localcluster.manifests import Manifest, apply_manifests

DEVICES_PER_NODE = 8
EXTENDED_RESOURCE = "example.com/gpu"
_API = "resource.k8s.io/v1"
_DRIVER = "gpu.example.com"
_CLASS = "bench-gpu"
_AT_ONCE = 200
_SECONDS: Final = 30.0


async def publish(session: KubeSession, nodes: int) -> None:
    """Create a DeviceClass and a ResourceSlice for each node."""
    expression = f"device.driver == '{_DRIVER}' && device.attributes['{_DRIVER}'].type == 'gpu'"
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    await apply_manifests(session, [Manifest(_object("DeviceClass", {"name": _CLASS}, spec))])
    slices = [Manifest(_slice(f"bench-{number:04}")) for number in range(nodes)]
    for start in range(0, nodes, _AT_ONCE):
        await apply_manifests(session, slices[start : start + _AT_ONCE])


async def create(session: KubeSession, *gangs: Workload) -> None:
    """Create the pods of gangs and a claim for a device for each of them."""
    requests = [{"name": "gpu", "exactly": {"deviceClassName": _CLASS}}]
    claims, pods = [], []
    for gang in gangs:
        for pod in gang.pods():
            metadata = {key: pod["metadata"][key] for key in ("name", "namespace")}
            claims.append(Manifest(_object("ResourceClaim", metadata, {"devices": {"requests": requests}})))
            pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": metadata["name"]}]
            pods.append(Manifest(pod))
    await apply_manifests(session, claims)
    await apply_manifests(session, pods)


async def protect(session: KubeSession) -> None:
    """Create the chart's policy for the finalizer of claims; returns when it is in force. Needs kube-apiserver."""
    [objects] = policies_and_bindings("", "claimProtectionPolicy.enabled")
    await apply_manifests(session, [Manifest(each) for each in objects])

    async def in_force() -> bool:
        trial = _object("ResourceClaim", {"generateName": "trial-"}, {"devices": {}})
        path, body = f"/apis/{_API}/namespaces/default/resourceclaims", msgspec.json.encode(trial)
        answer = await session.request("POST", path, query={"dryRun": "All"}, body=body, timeout_seconds=_SECONDS)
        return bool(msgspec.json.decode(answer.body)["metadata"].get("finalizers"))

    await eventually(in_force, "the policy is in force")


def _slice(node: str) -> dict[str, Any]:
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {"type": {"string": "gpu"}, "uuid": {"string": f"{node}-{number}"}},
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for number in range(DEVICES_PER_NODE)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": _DRIVER, "pool": pool, "nodeName": node, "devices": devices}
    return _object("ResourceSlice", {"name": node}, spec)


def _object(kind: str, metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": _API, "kind": kind, "metadata": metadata, "spec": spec}
