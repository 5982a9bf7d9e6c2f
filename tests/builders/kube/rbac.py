"""Roles and bindings, and clients with the identity of a user."""

from typing import Any

from builders.kube.client import ApiClient, Reply

GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{GROUP}/v1"
JSON = dict[str, Any]


class As:
    """Requests with one user's token."""

    def __init__(self, api: ApiClient, token: str) -> None:
        self._api = api
        self._headers = {"Authorization": f"Bearer {token}"}

    async def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Reply:
        return await self._api.call(method, path, body, content_type, **self._headers)

    async def get(self, path: str) -> Reply:
        return await self.call("GET", path)

    async def may(self, verb: str, resource: str, group: str = "", **attributes: str) -> bool:
        """A SelfSubjectAccessReview, as by `kubectl auth can-i`."""
        asked = {"verb": verb, "resource": resource, "group": group, **attributes}
        review = {"spec": {"resourceAttributes": asked}}
        reply = await self.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
        assert reply.status == 201, reply.body
        return bool(reply.body["status"]["allowed"])


def rule(verbs: str, resources: str, group: str = "", *, names: tuple[str, ...] = ()) -> JSON:
    """A PolicyRule; verbs and resources separated by spaces."""
    made: JSON = {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}
    return {**made, "resourceNames": list(names)} if names else made


def user(name: str) -> JSON:
    """As the subject of a binding."""
    return {"kind": "User", "apiGroup": GROUP, "name": name}


def group(name: str) -> JSON:
    """As the subject of a binding."""
    return {"kind": "Group", "apiGroup": GROUP, "name": name}


def account(namespace: str, name: str) -> JSON:
    """A ServiceAccount as the subject of a binding."""
    return {"kind": "ServiceAccount", "namespace": namespace, "name": name}


async def grant(api: ApiClient, name: str, *rules: JSON, to: JSON, namespace: str = "", role: str = "") -> None:
    """Create a role and its binding, cluster-wide without a namespace. `role`: an existing ClusterRole."""
    where = f"{RBAC}/namespaces/{namespace}/" if namespace else f"{RBAC}/"
    scope = "" if namespace else "cluster"
    kind = "ClusterRole" if role or not namespace else "Role"
    if not role:
        await api.created(f"{where}{scope}roles", {"metadata": {"name": name}, "rules": list(rules)})
    reference = {"apiGroup": GROUP, "kind": kind, "name": role or name}
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [to]}
    await api.created(f"{where}{scope}rolebindings", binding)
