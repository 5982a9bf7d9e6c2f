"""What a distribution of Kubernetes adds to the control plane: DNS, and volumes on the nodes."""

from collections.abc import Sequence
from typing import Any, Final

from cluster import network
from cluster.network import NodeAddress

JSON = dict[str, Any]

_COREFILE: Final = """
.:53 {
    errors
    health
    ready
    kubernetes cluster.local in-addr.arpa {
        pods insecure
        ttl 30
    }
    cache 30 {
        disable success cluster.local
        disable denial cluster.local
    }
    loadbalance
}
"""
_NAME: Final = "coredns"
_SYSTEM: Final = "kube-system"
_RBAC: Final = "rbac.authorization.k8s.io/v1"
_LABELS: Final = {"k8s-app": "kube-dns"}


def dns() -> list[JSON]:
    """CoreDNS with two replicas, as kubeadm installs it; it knows no name outside the cluster."""
    return [
        _object("v1", "ServiceAccount", _NAME),
        {
            **_object(_RBAC, "ClusterRole", _NAME, namespace=""),
            "rules": [
                _reads("", "services", "pods", "namespaces", "endpoints"),
                _reads("discovery.k8s.io", "endpointslices"),
            ],
        },
        {
            **_object(_RBAC, "ClusterRoleBinding", _NAME, namespace=""),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": _NAME},
            "subjects": [{"kind": "ServiceAccount", "name": _NAME, "namespace": _SYSTEM}],
        },
        {**_object("v1", "ConfigMap", _NAME), "data": {"Corefile": _COREFILE}},
        {
            **_object("v1", "Service", "kube-dns"),
            "spec": {
                "clusterIP": network.DNS_IP,
                "selector": _LABELS,
                "ports": [
                    {"name": "dns", "port": 53, "protocol": "UDP"},
                    {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
                ],
            },
        },
        {
            **_object("apps/v1", "Deployment", _NAME),
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": _LABELS},
                "template": {"metadata": {"labels": _LABELS}, "spec": _dns_pod()},
            },
        },
    ]


def storage(nodes: Sequence[NodeAddress], volumes_per_node: int) -> list[JSON]:
    """A default class of volumes that are directories of a node, and these volumes."""
    name = "node-directories"
    return [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        *(_volume(name, node, number) for node in nodes for number in range(volumes_per_node)),
    ]


def _dns_pod() -> JSON:
    return {
        "serviceAccountName": _NAME,
        "priorityClassName": "system-cluster-critical",
        "dnsPolicy": "Default",
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 100,
                        "podAffinityTerm": {
                            "topologyKey": "kubernetes.io/hostname",
                            "labelSelector": {"matchLabels": _LABELS},
                        },
                    }
                ]
            }
        },
        "containers": [
            {
                "name": _NAME,
                "image": "localhost/coredns:cluster",
                "imagePullPolicy": "Never",
                "command": ["/usr/local/bin/coredns", "-conf", "/etc/coredns/Corefile"],
                "resources": {"requests": {"cpu": "50m", "memory": "70Mi"}},
                "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
                "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 2},
                "livenessProbe": {
                    "httpGet": {"path": "/health", "port": 8080},
                    "timeoutSeconds": 5,
                    "failureThreshold": 5,
                },
            }
        ],
        "volumes": [{"name": "config", "configMap": {"name": _NAME}}],
    }


def _volume(storage_class: str, node: NodeAddress, number: int) -> JSON:
    hostname = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{node.name}-{number}"},
        "spec": {
            "capacity": {"storage": "8Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": storage_class,
            "local": {"path": f"/var/lib/volumes/{number}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [hostname]}]}},
        },
    }


def _reads(group: str, *resources: str) -> JSON:
    return {"apiGroups": [group], "resources": list(resources), "verbs": ["list", "watch"]}


def _object(version: str, kind: str, name: str, *, namespace: str = _SYSTEM) -> JSON:
    metadata = {"name": name} if not namespace else {"name": name, "namespace": namespace}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}
