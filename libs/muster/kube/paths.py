"""Where the API server has objects."""

from urllib.parse import quote


def object_path(api_version: str, plural: str, namespace: str, name: str = "") -> str:
    """Of an object in a namespace, or of all of its kind there. What is no name stays within its part of the path."""
    root = "apis" if "/" in api_version else "api"
    of_kind = f"/{root}/{quote(api_version)}/namespaces/{quote(namespace, safe='')}/{quote(plural, safe='')}"
    return f"{of_kind}/{quote(name, safe='')}" if name else of_kind
