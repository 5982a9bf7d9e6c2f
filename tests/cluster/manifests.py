"""Additions of a Kubernetes distribution to the control plane: DNS, network policies, and volumes on the nodes."""

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
_POLICIES: Final = "kube-network-policies"

STORAGE_CLASS: Final = "node-directories"
"""The default class; its volumes are directories of a node."""


def dns() -> list[JSON]:
    """CoreDNS with two replicas, as kubeadm installs it; it knows no name outside the cluster."""
    services = _reads("", "services", "pods", "namespaces", "endpoints")
    return [
        *_reader(_NAME, services, _reads("discovery.k8s.io", "endpointslices")),
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


def network_policies() -> list[JSON]:
    """A process on each node that lets the first packet of each connection pass, or not, as NetworkPolicies say."""
    labels = {"app": _POLICIES}
    return [
        *_reader(_POLICIES, _reads("", "pods", "namespaces"), _reads("networking.k8s.io", "networkpolicies")),
        {
            **_object("apps/v1", "DaemonSet", _POLICIES),
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": _policies_pod()},
            },
        },
    ]


def storage(nodes: Sequence[NodeAddress], volumes_per_node: int) -> list[JSON]:
    """A default class of volumes that are directories of a node, and these volumes."""
    return [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {
                "name": STORAGE_CLASS,
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        *(_volume(node, number) for node in nodes for number in range(volumes_per_node)),
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


def _policies_pod() -> JSON:
    return {
        "serviceAccountName": _POLICIES,
        "priorityClassName": "system-node-critical",
        "hostNetwork": True,
        "tolerations": [{"operator": "Exists"}],
        "containers": [
            {
                "name": _POLICIES,
                "image": f"localhost/{_POLICIES}:cluster",
                "imagePullPolicy": "Never",
                "command": [f"/usr/local/bin/{_POLICIES}", "--hostname-override=$(NODE)", "--disable-nri"],
                "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                "resources": {"requests": {"cpu": "50m", "memory": "50Mi"}},
                "securityContext": {"capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}},
            }
        ],
    }


def _volume(node: NodeAddress, number: int) -> JSON:
    hostname = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{node.name}-{number}"},
        "spec": {
            "capacity": {"storage": "8Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": STORAGE_CLASS,
            "local": {"path": f"/var/lib/volumes/{number}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [hostname]}]}},
        },
    }


def _reader(name: str, *rules: JSON) -> list[JSON]:
    """A service account that may read, in all namespaces."""
    return [
        _object("v1", "ServiceAccount", name),
        {**_object(_RBAC, "ClusterRole", name, namespace=""), "rules": list(rules)},
        {
            **_object(_RBAC, "ClusterRoleBinding", name, namespace=""),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": _SYSTEM}],
        },
    ]


def _reads(group: str, *resources: str) -> JSON:
    return {"apiGroups": [group], "resources": list(resources), "verbs": ["list", "watch"]}


def _object(version: str, kind: str, name: str, *, namespace: str = _SYSTEM) -> JSON:
    metadata = {"name": name} if not namespace else {"name": name, "namespace": namespace}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}
