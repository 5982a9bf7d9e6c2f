"""The verbs delete and deletecollection, with grace periods and finalizers.

Dependents are deleted in the background; the other propagation policies are rejected.
"""

from typing import Final

from muster.localcluster.apiserver.clock import later_text, now_text
from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.decoding import decode_options
from muster.localcluster.apiserver.kinds import Kind
from muster.localcluster.apiserver.read import selection_of
from muster.localcluster.apiserver.routing import Call
from muster.localcluster.apiserver.status import conflict, forbidden, invalid, not_supported
from muster.localcluster.apiserver.store import Object, Record, Store

_BACKGROUND: Final = "Background"
_PERMANENT_NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
_DEFAULT_GRACE_SECONDS: Final = 30


class Deleter:
    """Handles delete and deletecollection."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def delete(self, call: Call) -> tuple[Record, bool]:
        """The object's last state, and whether it was removed. Raises StatusError 400, 403, 404, 409, 422."""
        options = _options(call)
        target = call.target
        record = self._cluster.record(target.kind, target.namespace, target.name or "")
        return self.delete_record(target.kind, record, options, dry_run=call.dry_run)

    def delete_many(self, call: Call) -> list[Record]:
        """Delete all selected objects. Raises as `delete`."""
        options = _options(call)
        kind = call.target.kind
        selected = self.selected(call)
        return [self.delete_record(kind, record, options, dry_run=call.dry_run)[0] for record in selected]

    def selected(self, call: Call) -> list[Record]:
        """Selection of a deletecollection request."""
        selection = selection_of(call)
        records = list(self._cluster.store.collection(call.target.kind.collection).records.values())
        return [record for record in records if selection.matches(record.object)]

    def delete_record(
        self, kind: Kind, record: Record, options: Object | None = None, *, dry_run: bool = False
    ) -> tuple[Record, bool]:
        """Remove the object, or set its deletionTimestamp if it has a grace period or finalizers."""
        options = options or {}
        metadata = record.metadata
        check_preconditions(kind, record, options.get("preconditions") or {})
        if kind.collection == "namespaces" and metadata["name"] in _PERMANENT_NAMESPACES:
            raise forbidden("namespaces", "", metadata["name"], "this namespace may not be deleted")
        if kind.collection == "namespaces":
            return self._start_deletion(kind, record, None, dry_run)
        grace = _grace_seconds(kind, record.object, options)
        if not metadata.get("finalizers") and not grace:
            last = _marked(record.object, 0) if kind.collection == "pods" else None
            if dry_run:
                return record, True
            return self._cluster.store.remove(kind.collection, record.key, last), True
        return self._start_deletion(kind, record, grace, dry_run)

    def _start_deletion(self, kind: Kind, record: Record, grace: int | None, dry_run: bool) -> tuple[Record, bool]:
        metadata = record.metadata
        if "deletionTimestamp" in metadata:
            previous = metadata.get("deletionGracePeriodSeconds")
            if grace is None or previous is None or grace >= previous:
                return record, False
        if dry_run:
            return record, False
        marked = _marked(record.object, grace)
        if kind.collection == "namespaces":
            marked["status"] = {**(marked.get("status") or {}), "phase": "Terminating"}
        return self._cluster.store.put(kind.collection, record.key, marked), False


def drop_finalizer(store: Store, collection: str, record: Record, finalizer: str) -> None:
    """Remove a finalizer from an object that is being deleted, and the object with its last finalizer."""
    metadata = dict(record.metadata)
    remaining = [each for each in metadata.pop("finalizers") if each != finalizer]
    if remaining:
        metadata["finalizers"] = remaining
    changed = {**record.object, "metadata": metadata}
    if remaining or metadata.get("deletionGracePeriodSeconds"):
        store.put(collection, record.key, changed)
    else:
        store.remove(collection, record.key, changed)


def _marked(obj: Object, grace: int | None) -> Object:
    """Copy with a deletionTimestamp."""
    metadata = dict(obj["metadata"])
    first = "deletionTimestamp" not in metadata
    if first or grace is not None:
        metadata["deletionTimestamp"] = later_text(grace) if grace else now_text()
    if grace is not None:
        metadata["deletionGracePeriodSeconds"] = grace
    if first and "generation" in metadata:
        metadata["generation"] += 1
    return {**obj, "metadata": metadata}


def _options(call: Call) -> Object:
    options = decode_options(call.body, call.content_type)
    for name in ("gracePeriodSeconds", "propagationPolicy"):
        if name in call.query:
            options.setdefault(name, call.number(name) if name == "gracePeriodSeconds" else call.query[name])
    policy = options.get("propagationPolicy")
    if policy not in (None, _BACKGROUND):
        problem = not_supported("propagationPolicy", policy, (_BACKGROUND,))
        raise invalid("DeleteOptions", "meta.k8s.io", "", [problem])
    if options.get("dryRun"):
        call.query["dryRun"] = "All"
    return options


def check_preconditions(kind: Kind, record: Record, preconditions: Object) -> None:
    """Check uid and resourceVersion. Raises StatusError 409."""
    expected, uid = preconditions.get("uid"), record.metadata["uid"]
    if expected is not None and expected != uid:
        message = (
            f"the UID in the precondition ({expected}) does not match the UID in record ({uid}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(kind.name, kind.group, record.metadata["name"], message)
    version = preconditions.get("resourceVersion")
    if version is not None and version != str(record.revision):
        message = (
            f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
            f"({record.revision}). The object might have been modified"
        )
        raise conflict(kind.name, kind.group, record.metadata["name"], message)


def _grace_seconds(kind: Kind, obj: Object, options: Object) -> int:
    """Grace period; 0 for pods without a node."""
    if kind.collection != "pods":
        return 0
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    expected = options.get("gracePeriodSeconds")
    if expected is None:
        expected = spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE_SECONDS)
    return max(0, int(expected))
