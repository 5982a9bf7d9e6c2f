"""Simulated nodes and their Node objects."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from muster.localcluster.kubelets.devices.cards import CLIQUE_LABEL, NODES_PER_DOMAIN, CardKind, Cards, clique
from muster.localcluster.kubelets.devices.options import DeviceOption, options_by_node

KUBELET_VERSION: Final = "v1.33.0+muster-local"
_GPU: Final = "nvidia.com/gpu"
_ZONE: Final = "local"


class SimulatedNode(Struct, frozen=True):
    """Simulated node, with quantities in Kubernetes' format."""

    name: str
    address: str
    cpu: str = "8"
    memory: str = "32Gi"
    pods: int = 110
    labels: Mapping[str, str] = {}
    extended: Mapping[str, str] = {}
    """Extended resources, e.g. {"nvidia.com/gpu": "8"}."""
    cards: Cards | None = None
    """GPUs that are devices of dynamic resource allocation."""


def simulated_nodes(
    count: int,
    *,
    racks: int = 1,
    cpu: str = "8",
    memory: str = "32Gi",
    pods: int = 110,
    gpus: int = 0,
    devices: Sequence[DeviceOption] = (),
) -> list[SimulatedNode]:
    """Nodes named node-00, node-01, ... spread evenly over racks rack-0, rack-1, ... in order, equal but for devices.

    Raises BadDevices.
    """
    width = max(2, len(str(count - 1)))
    options = options_by_node(devices, count)

    def name(index: int) -> str:
        return f"node-{index:0{width}}"

    def labels(index: int) -> dict[str, str]:
        rack = {"rack": f"rack-{index * racks // count}"}
        option = options.get(index)
        if option is None or option.cards.kind is not CardKind.NVLINK:
            return rack
        first = index - (index - option.first) % NODES_PER_DOMAIN
        return {**rack, CLIQUE_LABEL: clique(name(first))}

    return [
        SimulatedNode(
            name=name(index),
            address=f"10.0.{index // 250}.{index % 250 + 1}",
            cpu=cpu,
            memory=memory,
            pods=pods,
            labels=labels(index),
            extended={_GPU: str(gpus)} if gpus else {},
            cards=options[index].cards if index in options else None,
        )
        for index in range(count)
    ]


def node_object(node: SimulatedNode, now: str) -> dict[str, Any]:
    """Node object for registration."""
    labels = {
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",  # otherwise the controllers of a real cluster add them later
        "beta.kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": _ZONE,
        **node.labels,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels},
        "spec": {},
        "status": node_status(node, now),
    }


def node_status(node: SimulatedNode, now: str) -> dict[str, Any]:
    """Status of a ready node."""
    offered = {
        "cpu": node.cpu,
        "memory": node.memory,
        "pods": str(node.pods),
        "ephemeral-storage": "100Gi",
        **node.extended,
    }
    addresses = [{"type": "InternalIP", "address": node.address}, {"type": "Hostname", "address": node.name}]
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
            "machineID": node.name,
            "systemUUID": node.name,
            "bootID": node.name,
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
