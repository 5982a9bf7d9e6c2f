"""The verbs create, update and patch, for all kinds."""

import secrets
import uuid
from typing import Any, Final

import msgspec

from muster.localcluster.apiserver.clock import now_text
from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.decoding import as_object, decode_object
from muster.localcluster.apiserver.field_validation import validate_fields
from muster.localcluster.apiserver.kinds import Kind
from muster.localcluster.apiserver.metadata import label_problems, metadata_causes, subdomain_problems
from muster.localcluster.apiserver.patch import patched
from muster.localcluster.apiserver.resource_quotas import charge
from muster.localcluster.apiserver.routing import Call
from muster.localcluster.apiserver.status import (
    already_exists,
    bad_request,
    conflict,
    forbidden_value,
    invalid,
    invalid_value,
)
from muster.localcluster.apiserver.store import Object, Record, key_of

_SUFFIX_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, as in Kubernetes
_SUFFIX_LENGTH: Final = 5
_MAX_GENERATED_BASE: Final = 58
_NAME_ATTEMPTS: Final = 8
_STALE: Final = "the object has been modified; please apply your changes to the latest version and try again"
_FROM_OLD: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


class RevisionConflict(Exception):
    """The object has changed since the revision that the call requires."""


class Writer:
    """Handles create, update and patch."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def create(self, call: Call) -> Record:
        """Raises StatusError 400, 403, 404, 409, 415, 422."""
        return self.create_object(call, decode_object(call.target.kind, call.body, call.content_type))

    def create_object(self, call: Call, obj: Object) -> Record:
        """Create a decoded object; takes ownership of it."""
        cluster, kind, namespace = self._cluster, call.target.kind, call.target.namespace
        metadata = obj["metadata"]
        _place(kind, metadata, namespace)
        if metadata.get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        for name in ("resourceVersion", "selfLink", "managedFields", "deletionTimestamp", "deletionGracePeriodSeconds"):
            metadata.pop(name, None)
        rules = kind.rules
        validate_fields(kind, obj, call)
        if rules.keeps_status_apart and not rules.takes_status_of_new and kind.subresource("status") is not None:
            obj.pop("status", None)
            if rules.empty_status is not None:
                obj["status"] = dict(rules.empty_status)
        self._name(call, metadata)
        if namespace is not None:
            cluster.check_namespace(namespace, kind, metadata.get("name", ""))
        metadata["uid"] = call.uid or str(uuid.uuid4())
        metadata["creationTimestamp"] = now_text()
        metadata.pop("generation", None)
        if rules.counts_generations:
            metadata["generation"] = 1
        rules.default(obj)
        rules.admit(cluster, obj)
        _check(kind, obj, [*_metadata_problems(kind, metadata), *rules.validate(obj)])
        for guard in cluster.guards:
            guard.check(call, obj, None)
        key = key_of(namespace, metadata["name"])
        if call.trial:
            return Record(key, obj if kind.to_stored is None else kind.to_stored(obj), 0)
        if cluster.store.get(kind.collection, key) is not None:
            raise already_exists(kind.plural, kind.group, metadata["name"])
        stored = obj if kind.to_stored is None else kind.to_stored(obj)
        charge(cluster, kind, Record(key, stored, 0), dry_run=call.dry_run)
        if call.dry_run:
            return Record(key, stored, 0)
        return cluster.store.put(kind.collection, key, stored)

    def update(self, call: Call) -> Record:
        """Raises StatusError 400, 404, 409, 415, 422."""
        kind = call.target.kind
        new = decode_object(kind, call.body, call.content_type)
        record = self._current(call)
        return self._replace(call, new, record)

    def patch(self, call: Call) -> Record:
        """Raises StatusError 400, 404, 409, 415, 422."""
        kind = call.target.kind
        record = self._current(call)
        current = msgspec.json.decode(record.encoded)  # a copy, since stored objects are immutable
        if kind.from_stored is not None:
            current = kind.from_stored(current)
        new = as_object(kind, patched(kind, current, call.content_type, call.body))
        return self._replace(call, new, record)

    def _current(self, call: Call) -> Record:
        assert call.target.name is not None
        record = self._cluster.record(call.target.kind, call.target.namespace, call.target.name)
        if call.at_revision not in (0, record.revision):
            raise RevisionConflict
        return record

    def _replace(self, call: Call, new: Object, record: Record) -> Record:
        kind, rules = call.target.kind, call.target.kind.rules
        old = record.object if kind.from_stored is None else kind.from_stored(record.object)
        metadata = new["metadata"]
        _place(kind, metadata, call.target.namespace)
        self._check_same(call, metadata, record)
        validate_fields(kind, new, call)
        _keep_system_fields(metadata, old["metadata"])
        if call.target.subresource == "status":
            new = _only_status(kind, new, old)
        elif rules.keeps_status_apart and kind.subresource("status") is not None:
            _keep_status(new, old)
        metadata = new["metadata"]
        problems = [*_metadata_problems(kind, metadata), *_finalizer_problems(metadata, old["metadata"])]
        if call.target.subresource != "status" or rules.checks_status:
            rules.default(new)
            rules.prepare_update(new, old)
            problems += rules.validate(new)
            problems += rules.validate_update(new, old)
        _check(kind, new, problems)
        if new == old:
            return record
        for guard in self._cluster.guards:
            guard.check(call, new, old)
        if rules.counts_generations and _without(new) != _without(old):
            metadata["generation"] = old["metadata"].get("generation", 0) + 1
        stored = new if kind.to_stored is None else kind.to_stored(new)
        if call.dry_run or call.trial:
            return Record(record.key, stored, record.revision)
        if _finished(metadata):
            return self._cluster.store.remove(kind.collection, record.key, stored)
        return self._cluster.store.put(kind.collection, record.key, stored)

    def _check_same(self, call: Call, metadata: Object, record: Record) -> None:
        """Check uid and resourceVersion of the request."""
        kind, name = call.target.kind, call.target.name or ""
        if metadata.setdefault("name", name) != name:
            wrong = metadata["name"]
            raise bad_request(f"the name of the object ({wrong}) does not match the name on the URL ({name})")
        uid = record.metadata["uid"]
        if metadata.get("uid", uid) != uid:
            if call.method == "PATCH":
                problem = invalid_value("metadata.uid", metadata["uid"], "field is immutable")
                raise invalid(kind.name, kind.group, name, [problem])
            detail = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {uid}"
            raise conflict(kind.plural, kind.group, name, detail)
        version = metadata.get("resourceVersion")
        if not version and kind.custom and call.method == "PUT":
            problem = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid(kind.plural, kind.group, name, [problem])
        if version and version != str(record.revision):
            raise conflict(kind.plural, kind.group, name, _STALE)

    def _name(self, call: Call, metadata: Object) -> None:
        kind, namespace = call.target.kind, call.target.namespace
        if metadata.get("name") or not metadata.get("generateName"):
            return
        if call.name:
            metadata["name"] = call.name
            return
        base = metadata["generateName"][:_MAX_GENERATED_BASE]
        for _ in range(_NAME_ATTEMPTS):
            name = base + "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(_SUFFIX_LENGTH))
            if self._cluster.store.get(kind.collection, key_of(namespace, name)) is None:
                break
        metadata["name"] = name


def _place(kind: Kind, metadata: Object, namespace: str | None) -> None:
    if not kind.namespaced:
        metadata.pop("namespace", None)
    elif metadata.setdefault("namespace", namespace) != namespace:
        if metadata["namespace"]:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        metadata["namespace"] = namespace


def _metadata_problems(kind: Kind, metadata: Object) -> list[Any]:
    name_problems = label_problems if kind.collection in ("namespaces", "services") else subdomain_problems
    return list(metadata_causes(metadata, name_problems))


def _finalizer_problems(new: Object, old: Object) -> list[Any]:
    if "deletionTimestamp" not in old:
        return []
    added = [each for each in new.get("finalizers") or () if each not in (old.get("finalizers") or ())]
    if not added:
        return []
    detail = f"no new finalizers can be added if the object is being deleted, found new finalizers {added}"
    return [forbidden_value("metadata.finalizers", detail)]


def _check(kind: Kind, obj: Object, problems: list[Any]) -> None:
    if problems:
        raise invalid(kind.name, kind.group, obj["metadata"].get("name", ""), problems)


def _keep_system_fields(new: Object, old: Object) -> None:
    for name in _FROM_OLD:
        if name in old:
            new[name] = old[name]
        else:
            new.pop(name, None)
    new.pop("managedFields", None)
    new.pop("selfLink", None)
    new["resourceVersion"] = old["resourceVersion"]


def _finished(metadata: Object) -> bool:
    """Whether it is being deleted and has no finalizers."""
    held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return "deletionTimestamp" in metadata and not held


def _only_status(kind: Kind, new: Object, old: Object) -> Object:
    merged = dict(old)
    merged["metadata"] = metadata = dict(old["metadata"])
    if not kind.custom and kind.rules.status_changes_labels:
        for name in ("labels", "annotations"):
            if new["metadata"].get(name):
                metadata[name] = new["metadata"][name]
            else:
                metadata.pop(name, None)
    merged.pop("status", None)
    if new.get("status") is not None:
        merged["status"] = new["status"]
    return merged


def _keep_status(new: Object, old: Object) -> None:
    new.pop("status", None)
    if "status" in old:
        new["status"] = old["status"]


def _without(obj: Object) -> Object:
    return {name: value for name, value in obj.items() if name not in ("metadata", "status")}
