"""The state that all parts of the API server share, and how they reach an object in it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from muster.localcluster.apiserver.kinds import Kind, Kinds
from muster.localcluster.apiserver.status import forbidden, not_found
from muster.localcluster.apiserver.store import Object, Record, Store, key_of

if TYPE_CHECKING:
    from muster.localcluster.apiserver.routing import Call


@dataclass(frozen=True)
class Timing:
    """How long things take; tests shorten some."""

    bookmark_seconds: float = 30.0
    """Between bookmarks of a watch that asked for them."""
    watch_seconds: float = 1800.0
    """How long a watch lasts that names no time."""
    event_ttl_seconds: float = 3600.0
    """How long events are kept."""
    node_grace_seconds: float = 40.0
    """A node whose lease was not renewed for so long is unreachable."""
    orphaned_pod_seconds: float = 5.0
    """Pods of a node that is gone are removed after so long (a real cluster takes some minutes)."""


class Guard(Protocol):
    """Looks at what is about to be stored: whether who writes it may go as far."""

    def check(self, call: "Call", new: Object, old: Object | None) -> None:
        """Raises StatusError 403."""


class Cluster:
    """Objects and kinds of one API server."""

    def __init__(self, kinds: Kinds, *, history: int, timing: Timing) -> None:
        self.store = Store(history)
        self.kinds = kinds
        self.timing = timing
        self.guard: Guard | None = None
        """None: everybody may."""
        for kind in kinds:
            self.store.collection(kind.collection)  # their history begins here, not when somebody first asks

    def record(self, kind: Kind, namespace: str | None, name: str) -> Record:
        """An object. Raises StatusError 404."""
        record = self.store.get(kind.collection, key_of(namespace, name))
        if record is None:
            raise not_found(kind.plural, kind.group, name)
        return record

    def check_namespace(self, namespace: str, kind: Kind, name: str) -> None:
        """An object of that kind and name is to be created there. Raises StatusError 404 or 403."""
        record = self.store.get("namespaces", namespace)
        if record is None:
            raise not_found("namespaces", "", namespace)
        if "deletionTimestamp" in record.metadata:
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise forbidden(kind.plural, kind.group, name, why, causes=[cause])
