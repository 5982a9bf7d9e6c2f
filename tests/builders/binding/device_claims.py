"""ResourceClaims of pods: created in the cluster, given to Bind calls, and read again."""

from collections.abc import Sequence
from typing import Any

import msgspec

from builders.binding.service import Object, Rig
from builders.e2e.faults import Requests
from muster.binding.v1 import binding_pb2 as pb

FINALIZER = "resource.kubernetes.io/delete-protection"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims"
STATUS_WRITES = Requests("PUT", "/resourceclaims/[^/]+/status")
FIRST_ALLOCATIONS = Requests("PATCH", "/resourceclaims/[^/]+/status")
"""Of claims that are taken to have the finalizer since their creation."""
CLAIM_WRITES = Requests("PUT|PATCH", "/resourceclaims/[^/]+(/status)?")
DRIVER = "gpu.example.com"
OTHER = {"apiGroup": "example.com", "resource": "trainings", "name": "other-0", "uid": "uid-other"}
"""A user that the claim controller keeps; it removes pods and PodGroups that do not exist."""


def allocation(*devices: str, node: str = "node-0") -> Object:
    """An allocation of devices of a node."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    results = [{"request": "gpu", "driver": DRIVER, "pool": node, "device": each} for each in devices]
    return {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [term]}}


async def claims(muster: Rig, *names: str, **metadata: Any) -> list[Object]:
    """Claims for a device each."""
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
    spec = {"devices": {"requests": [request]}}
    return [
        await muster.kube.create("ResourceClaim", {"metadata": {"name": name, **metadata}, "spec": spec})
        for name in names
    ]


async def claim(muster: Rig, name: str) -> Object:
    return await muster.get(f"{CLAIMS}/{name}")


async def allocate(muster: Rig, name: str, *devices: str, users: Sequence[Object] = (), node: str = "node-0") -> None:
    """Write the status of a claim, as another scheduler does."""
    status = {"allocation": allocation(*devices, node=node), "reservedFor": list(users)}
    await muster.kube.patch("ResourceClaim", name, {"status": status}, part="/status")


def user(pod: Object) -> Object:
    """The pod in a claim's status.reservedFor."""
    return {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}


def wanted(claim: Object, *devices: str, node: str = "node-0", group: Object | None = None) -> pb.DeviceClaim:
    """The claim for a Bind call, with these devices, or without an allocation; `group`: the PodGroup that uses it."""
    metadata = claim["metadata"]
    body = msgspec.json.encode(allocation(*devices, node=node)) if devices else b""
    found = pb.DeviceClaim(name=metadata["name"], uid=metadata["uid"], allocation=body)
    if group is not None:
        found.group_name, found.group_uid = group["metadata"]["name"], group["metadata"]["uid"]
    return found


def by_uid(pods: Sequence[Object], given: Sequence[pb.DeviceClaim]) -> dict[str, list[pb.DeviceClaim]]:
    """One claim for each pod."""
    return {pod["metadata"]["uid"]: [each] for pod, each in zip(pods, given, strict=True)}


def devices_of(claim: Object) -> list[str]:
    """Names of the allocated devices; none without an allocation."""
    found = claim.get("status", {}).get("allocation", {"devices": {"results": []}})
    return [each["device"] for each in found["devices"]["results"]]


def users_of(claim: Object) -> list[str]:
    """Names of the pods that the claim is reserved for."""
    return [each["name"] for each in claim.get("status", {}).get("reservedFor", [])]


async def pod_group(muster: Rig, **spec: Any) -> Object:
    """The PodGroup "g"."""
    return await muster.kube.create(
        "NativePodGroup",
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "g"},
            "spec": {"schedulingPolicy": {"basic": {}}, **spec},
        },
    )
