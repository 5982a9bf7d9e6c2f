"""Shared state of the API server: store, kinds, timing."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from muster.localcluster.apiserver.kinds import Kind, Kinds
from muster.localcluster.apiserver.status import forbidden, not_found
from muster.localcluster.apiserver.store import Object, Record, Store, key_of

if TYPE_CHECKING:
    from muster.localcluster.apiserver.routing import Call


@dataclass(frozen=True)
class Timing:
    """Intervals and timeouts; tests shorten some."""

    bookmark_seconds: float = 30.0
    """Interval of watch bookmarks."""
    watch_seconds: float = 1800.0
    """Minimum duration of a watch without timeoutSeconds."""
    event_ttl_seconds: float = 3600.0
    """Time to live of events."""
    node_grace_seconds: float = 40.0
    """Age of a node's lease after which the node is unreachable."""
    orphaned_pod_seconds: float = 5.0
    """Delay of the deletion of pods on a deleted node (some minutes in a real cluster)."""


class WriteCheck(Protocol):
    """Checks whether a user may store an object."""

    def check(self, call: "Call", new: Object, old: Object | None) -> None:
        """Raises StatusError 403 or 422."""


class Cluster:
    """Objects and kinds of one API server."""

    def __init__(self, kinds: Kinds, *, history: int, timing: Timing) -> None:
        self.store = Store(history)
        self.kinds = kinds
        self.timing = timing
        self.guards: list[WriteCheck] = []
        """Checks of every write."""
        for kind in kinds:
            self.store.collection(kind.collection)  # the history begins now, not at the first request

    def record(self, kind: Kind, namespace: str | None, name: str) -> Record:
        """Look up an object. Raises StatusError 404."""
        record = self.store.get(kind.collection, key_of(namespace, name))
        if record is None:
            raise not_found(kind.plural, kind.group, name)
        return record

    def check_namespace(self, namespace: str, kind: Kind, name: str) -> None:
        """Check that an object may be created in the namespace. Raises StatusError 404 or 403."""
        record = self.store.get("namespaces", namespace)
        if record is None:
            raise not_found("namespaces", "", namespace)
        if "deletionTimestamp" in record.metadata:
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            message = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise forbidden(kind.plural, kind.group, name, message, causes=[cause])
