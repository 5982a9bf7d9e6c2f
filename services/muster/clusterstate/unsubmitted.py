"""Facts of objects that are not in a cluster: what cluster-state would stream if they were."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from itertools import count
from typing import Any, Final

import msgspec

from muster.clusterstate.state import ClusterState
from muster.gangs.facts import Batch
from muster.kube.api_resources import ALL, ApiResource, topologies
from muster.kube.object_changes import ObjectChanges
from muster.kube.objects import UNREADABLE

_KEYS: Final = ("apiVersion", "kind")


class UnreadableObject(ValueError):
    """An object that cluster-state could not read. The message names it and says why."""


def is_read(manifest: Mapping[str, Any]) -> bool:
    """Objects of this kind are read by Muster."""
    return _path(manifest) in _RESOURCES


def facts_of(manifests: Iterable[Mapping[str, Any]], scheduler_names: Collection[str]) -> Batch:
    """The facts of these objects, and of no others, as a snapshot. Objects of kinds that Muster does not read are left
    out. Those without a uid have one made of their kind, namespace and name. Raises UnreadableObject.
    """
    state, revisions = ClusterState(scheduler_names), count(1)
    by_kind: dict[str, list[Any]] = {}
    resources: dict[str, ApiResource[Any]] = {}
    for manifest in manifests:
        resource = _RESOURCES.get(_path(manifest))
        if resource is None:
            continue
        resources[resource.kind] = resource
        by_kind.setdefault(resource.kind, []).append(_decoded(resource, manifest, next(revisions)))
    last = next(revisions)
    for kind in sorted(by_kind, key=lambda kind: kind == "pods"):
        state.apply(ObjectChanges(kind, by_kind[kind], through=last))
    deque(state.settle(), maxlen=0)
    return state.snapshot()


def _decoded(resource: ApiResource[Any], manifest: Mapping[str, Any], revision: int) -> Any:
    metadata = dict(manifest.get("metadata") or {})
    name = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
    metadata.setdefault("uid", f"{resource.kind}/{name}")
    metadata["resourceVersion"] = str(revision)
    try:
        content = msgspec.json.encode({**manifest, "metadata": metadata})
        return msgspec.json.decode(content, type=resource.type)
    except (*UNREADABLE, TypeError) as error:  # TypeError: JSON has no such keys
        raise UnreadableObject(f"{manifest.get('kind')} {name.strip('/')}: {error}") from None


def _path(manifest: Mapping[str, Any]) -> str:
    """The path of its collection, without the namespace."""
    version, kind = (str(manifest.get(key, "")) for key in _KEYS)
    plural = f"{kind.lower()}{'es' if kind.endswith('s') else 's'}"
    return f"/{'apis' if '/' in version else 'api'}/{version}/{plural}"


_RESOURCES: Final[Mapping[str, ApiResource[Any]]] = {
    path: resource for resource in (*ALL, topologies("")) for path in (resource.path, *resource.older_paths)
}
