"""Simulated nodes: what they offer, and how that looks as a Node object."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

KUBELET_VERSION: Final = "v1.33.0+muster-local"
_GPU: Final = "nvidia.com/gpu"
_ZONE: Final = "local"


class NodeShape(Struct, frozen=True):
    """One simulated node. Quantities as Kubernetes writes them."""

    name: str
    address: str
    cpu: str = "8"
    memory: str = "32Gi"
    pods: int = 110
    labels: Mapping[str, str] = {}
    extended: Mapping[str, str] = {}
    """Further resources, e.g. {"nvidia.com/gpu": "8"}."""


def node_shapes(
    count: int, *, racks: int = 1, cpu: str = "8", memory: str = "32Gi", pods: int = 110, gpus: int = 0
) -> list[NodeShape]:
    """Equal nodes named node-00, node-01, ... spread evenly over racks rack-0, rack-1, ... in order."""
    width = max(2, len(str(count - 1)))
    return [
        NodeShape(
            name=f"node-{index:0{width}}",
            address=f"10.0.{index // 250}.{index % 250 + 1}",
            cpu=cpu,
            memory=memory,
            pods=pods,
            labels={"rack": f"rack-{index * racks // count}"},
            extended={_GPU: str(gpus)} if gpus else {},
        )
        for index in range(count)
    ]


def node_object(shape: NodeShape, now: str) -> dict[str, Any]:
    """The Node object with which a kubelet registers."""
    labels = {
        "kubernetes.io/hostname": shape.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",  # without these, the controllers of a real cluster write them a moment later
        "beta.kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": _ZONE,
        **shape.labels,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": shape.name, "labels": labels},
        "spec": {},
        "status": node_status(shape, now),
    }


def node_status(shape: NodeShape, now: str) -> dict[str, Any]:
    """The status of a node that is well."""
    offered = {
        "cpu": shape.cpu,
        "memory": shape.memory,
        "pods": str(shape.pods),
        "ephemeral-storage": "100Gi",
        **shape.extended,
    }
    addresses = [{"type": "InternalIP", "address": shape.address}, {"type": "Hostname", "address": shape.name}]
    return {
        "capacity": offered,
        "allocatable": offered,
        "conditions": [
            _condition("MemoryPressure", "False", "KubeletHasSufficientMemory", now),
            _condition("DiskPressure", "False", "KubeletHasNoDiskPressure", now),
            _condition("PIDPressure", "False", "KubeletHasSufficientPID", now),
            _condition("Ready", "True", "KubeletReady", now),
        ],
        "addresses": addresses,
        "nodeInfo": {
            "machineID": shape.name,
            "systemUUID": shape.name,
            "bootID": shape.name,
            "kernelVersion": "simulated",
            "osImage": "simulated",
            "containerRuntimeVersion": "simulated://1",
            "kubeletVersion": KUBELET_VERSION,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
    }


def _condition(name: str, status: str, reason: str, now: str) -> dict[str, Any]:
    return {
        "type": name,
        "status": status,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
        "reason": reason,
        "message": "simulated",
    }
