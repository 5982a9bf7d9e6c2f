"""Default roles of every cluster: for administrators, authenticated users and nodes."""

from typing import Any, Final

from muster.localcluster.apiserver.access.authorizer import GROUP
from muster.localcluster.apiserver.access.users import AUTHENTICATED, MASTERS
from muster.localcluster.apiserver.store import Object

NODES: Final = "system:nodes"
"""Group of kubelets."""


def _rule(group: str, resources: str, *verbs: str) -> Object:
    return {"apiGroups": [group], "resources": resources.split(), "verbs": list(verbs)}


def _paths(*paths: str) -> Object:
    return {"nonResourceURLs": list(paths), "verbs": ["get"]}


_HEALTH: Final = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_DISCOVERY: Final = ("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*")
_NODE: Final = [
    _rule("", "nodes", "create", "get", "list", "watch", "patch", "update"),
    _rule("", "nodes/status", "patch", "update"),
    _rule("", "pods", "get", "list", "watch", "delete", "create"),
    _rule("", "pods/status", "patch", "update"),
    _rule("", "events", "create", "patch", "update"),
    _rule("coordination.k8s.io", "leases", "get", "create", "patch", "update", "delete"),
    _rule("resource.k8s.io", "resourceclaims", "get", "list", "watch"),
    _rule("resource.k8s.io", "resourceslices", "get", "list", "watch", "create", "update", "patch", "delete"),
]
_ROLES: Final[dict[str, list[Any]]] = {
    "cluster-admin": [_rule("*", "*", "*"), {"nonResourceURLs": ["*"], "verbs": ["*"]}],
    "system:discovery": [_paths(*_HEALTH, *_DISCOVERY)],
    "system:basic-user": [_rule("authorization.k8s.io", "selfsubjectaccessreviews", "create")],
    "system:node": _NODE,
}
_BOUND: Final = {
    "cluster-admin": (MASTERS,),
    "system:discovery": (AUTHENTICATED,),
    "system:basic-user": (AUTHENTICATED,),
    "system:node": (NODES,),
}


def default_roles() -> list[Object]:
    """Default ClusterRoles and ClusterRoleBindings, without system metadata."""
    labels = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    objects: list[Object] = []
    for name, rules in _ROLES.items():
        objects.append(_object("ClusterRole", name, labels) | {"rules": rules})
    for name, groups in _BOUND.items():
        subjects = [{"kind": "Group", "apiGroup": GROUP, "name": group} for group in groups]
        role = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
        objects.append(_object("ClusterRoleBinding", name, labels) | {"subjects": subjects, "roleRef": role})
    return objects


def _object(kind: str, name: str, labels: dict[str, str]) -> Object:
    return {"kind": kind, "apiVersion": f"{GROUP}/v1", "metadata": {"name": name, "labels": dict(labels)}}
