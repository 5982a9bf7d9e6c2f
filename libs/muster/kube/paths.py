"""URL paths of objects in the Kubernetes API. Names are quoted: a malformed name stays within its path segment."""

from functools import partial
from typing import Final
from urllib.parse import quote

_segment: Final = partial(quote, safe="")


def object_path(api_version: str, plural: str, namespace: str, name: str = "") -> str:
    """Path of a namespaced object, or of the collection without a name."""
    root = "apis" if "/" in api_version else "api"
    collection = f"/{root}/{quote(api_version)}/namespaces/{_segment(namespace)}/{_segment(plural)}"
    return f"{collection}/{_segment(name)}" if name else collection


def pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{_segment(namespace)}/pods/{_segment(name)}"


def claim_path(namespace: str, name: str) -> str:
    """Path of a PersistentVolumeClaim."""
    return f"/api/v1/namespaces/{_segment(namespace)}/persistentvolumeclaims/{_segment(name)}"


def volume_path(name: str) -> str:
    """Path of a PersistentVolume."""
    return f"/api/v1/persistentvolumes/{_segment(name)}"


def node_path(name: str) -> str:
    return f"/api/v1/nodes/{_segment(name)}"


def events_path(namespace: str, name: str = "") -> str:
    """Path of an event (events.k8s.io/v1), or of the collection without a name."""
    return object_path("events.k8s.io/v1", "events", namespace, name)
