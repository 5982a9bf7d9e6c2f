"""Authorization attributes of a request, from its path alone, whether or not the object exists."""

from typing import Final

from msgspec import Struct

from muster.localcluster.apiserver.status import StatusError

_VERBS_OF_OBJECTS: Final = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch"}
_VERBS_OF_OBJECTS["DELETE"] = "delete"
_VERBS_OF_COLLECTIONS: Final = {**_VERBS_OF_OBJECTS, "GET": "list", "HEAD": "list", "DELETE": "deletecollection"}
_STATUS: Final = "status"
_TRUE: Final = ("true", "1", "t")
_NAME_FIELD: Final = "metadata.name"


class Attributes(Struct, frozen=True):
    """Verb and resource, with its subresource as in "pods/binding". `path` only for non-resource URLs."""

    verb: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


def attributes_of(method: str, path: str, query: dict[str, str]) -> Attributes:
    """Attributes of a request."""
    group, parts = _split(path)
    if not parts:
        return Attributes(method.lower(), path=path)
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace = parts[1]
        if len(parts) > 2 and parts[2] != _STATUS:
            parts = parts[2:]
    resource = parts[0]
    name = parts[1] if len(parts) > 1 else ""
    if len(parts) > 2:
        resource = f"{resource}/{parts[2]}"
    if name:
        return Attributes(_VERBS_OF_OBJECTS.get(method, method.lower()), group, resource, namespace, name)
    verb = _VERBS_OF_COLLECTIONS.get(method, method.lower())
    if verb == "list" and query.get("watch", "").lower() in _TRUE:
        verb = "watch"
    if verb != "create":
        name = _selected_name(query.get("fieldSelector", ""))
    return Attributes(verb, group, resource, namespace, name)


def denied(user: str, attributes: Attributes) -> StatusError:
    """403 with the text of kube-apiserver."""
    if attributes.path:
        message = f'forbidden: User "{user}" cannot {attributes.verb} path "{attributes.path}"'
        return StatusError(403, message, details={})
    plural = attributes.resource.partition("/")[0]
    qualified = f"{plural}.{attributes.group}" if attributes.group else plural
    subject = f'{qualified} "{attributes.name}"' if attributes.name else qualified
    details = {"name": attributes.name, "group": attributes.group, "kind": plural}
    return StatusError(
        403,
        f"{subject} is forbidden: {denial_text(user, attributes)}",
        details={key: value for key, value in details.items() if value},
    )


def denial_text(user: str, attributes: Attributes) -> str:
    """Text of a denial for a resource."""
    scope = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    resource = f'resource "{attributes.resource}" in API group "{attributes.group}"'
    return f'User "{user}" cannot {attributes.verb} {resource} {scope}'


def _split(path: str) -> tuple[str, list[str]]:
    """API group and the path after its version; no path for non-resource URLs."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        return "", parts[2:]
    if parts[0] == "apis" and len(parts) > 3:
        return parts[1], parts[3:]
    return "", []


def _selected_name(selector: str) -> str:
    """The name that a field selector requires; empty if it requires none."""
    for term in selector.split(","):
        field, equal, value = term.partition("=")
        if equal and field == _NAME_FIELD:
            return value.removeprefix("=")
    return ""
