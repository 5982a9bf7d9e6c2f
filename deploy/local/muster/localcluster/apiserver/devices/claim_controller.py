"""ResourceClaim controller: generates claims for pods and PodGroups, and deallocates claims that none uses.

As in kube-controller-manager, a claim that a scheduler has allocated is reserved for a bound pod that uses it, and a
generated claim is deleted once its pod has ended; the garbage collector deletes those of deleted pods.
"""

from typing import Final

import structlog

from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.controller_events import ControllerEvent, record_event
from muster.localcluster.apiserver.delete import Deleter
from muster.localcluster.apiserver.devices.generated_claims import generated_claim, owning_pod, pod_claim_of
from muster.localcluster.apiserver.devices.group_claims import (
    OWNER_VERSION,
    group_claim_name,
    group_entries,
    group_key,
    is_group,
    is_of_group,
)
from muster.localcluster.apiserver.devices.kinds import CLAIMS, FINALIZER, TEMPLATES
from muster.localcluster.apiserver.devices.pod_claims import claim_name, claim_names, uses_claims
from muster.localcluster.apiserver.pod_groups import COLLECTION as POD_GROUPS
from muster.localcluster.apiserver.retries import Retries
from muster.localcluster.apiserver.routing import Call, Target
from muster.localcluster.apiserver.status import StatusError
from muster.localcluster.apiserver.store import Change, Collection, Object, Record, key_of
from muster.localcluster.apiserver.work_queue import WorkQueue
from muster.localcluster.apiserver.write import Writer

_PODS: Final = "pods"
_COMPONENT: Final = "resource_claim"
_ENDED: Final = ("Succeeded", "Failed")
_MAX_RESERVED: Final = 256

_log: Final = structlog.get_logger(__name__)


class ResourceClaimController:
    """Reconciles pods with their claims, and claims with the pods that use them."""

    def __init__(self, cluster: Cluster, writer: Writer, deleter: Deleter) -> None:
        self._store, self._kinds = cluster.store, cluster.kinds
        self._writer, self._deleter = writer, deleter
        self._users: dict[str, set[str]] = {}
        """Claim -> pods that use it; an entry ends with its last pod."""
        self._generated: dict[str, dict[str, str]] = {}
        """Uid of a pod -> name in the pod -> generated claim; an entry ends with its last claim."""
        self._without_template: dict[str, set[str]] = {}
        """Missing template -> pods that need it; an entry ends with the template's creation or its last pod."""
        self._of_group: dict[str, set[str]] = {}
        """PodGroup -> pods with claims that name it; an entry ends with its last pod."""
        self._groups_without_template: set[str] = set()
        """PodGroups that need a missing template, until the next one is created."""
        self._queue: WorkQueue[tuple[str, str]] = WorkQueue(self._reconcile)
        self._retries: Retries[str] = Retries(lambda pod: self._queue.add((_PODS, pod)))

    async def run(self) -> None:
        try:
            await self._queue.run()
        finally:
            self._retries.stop()

    def note(self, collection: Collection, change: Change) -> None:
        if collection.name == _PODS:
            if uses_claims(change.record.object):
                self._note_pod(change)
        elif collection.name == CLAIMS:
            self._note_claim(change)
        elif collection.name == POD_GROUPS:
            self._note_group(change)
        elif collection.name == TEMPLATES and change.type == "ADDED":
            for pod in self._without_template.pop(change.record.key, ()):
                self._queue.add((_PODS, pod))
            for group in self._groups_without_template:
                self._queue.add((POD_GROUPS, group))
            self._groups_without_template.clear()

    def _note_pod(self, change: Change) -> None:
        pod = change.record
        before = set(_claim_keys(change.before)) if change.before is not None else set()
        after = set(_claim_keys(pod)) if change.type != "DELETED" else set()
        for claim in before - after:
            _discard(self._users, claim, pod.key)
        for claim in after - before:
            self._users.setdefault(claim, set()).add(pod.key)
        if (group := group_key(pod.object)) is not None:
            if change.type == "DELETED":
                _discard(self._of_group, group, pod.key)
            else:
                self._of_group.setdefault(group, set()).add(pod.key)
        if change.type == "DELETED":
            self._retries.forget(pod.key)
            for entry in pod.object["spec"].get("resourceClaims") or ():
                _discard(self._without_template, _template_key(pod, entry), pod.key)
        if change.type == "DELETED" or _is_done(pod.object):
            for claim in before | after:
                self._queue.add((CLAIMS, claim))
        else:
            self._queue.add((_PODS, pod.key))

    def _note_group(self, change: Change) -> None:
        group = change.record
        entries = group_entries(group.object)
        if change.type == "DELETED":
            for entry in entries:
                if name := group_claim_name(group.object, entry):
                    self._queue.add((CLAIMS, key_of(group.metadata["namespace"], name)))
        elif entries:
            self._queue.add((POD_GROUPS, group.key))
        for pod in self._of_group.get(group.key, ()):
            self._queue.add((_PODS, pod))

    def _note_claim(self, change: Change) -> None:
        claim = change.record
        owner, name = owning_pod(claim.metadata), pod_claim_of(claim.metadata)
        if change.type == "DELETED":
            if owner is not None and (generated := self._generated.get(owner["uid"])) is not None:
                generated.pop(name or "", None)
                if not generated:
                    del self._generated[owner["uid"]]
        else:
            if owner is not None and name:
                self._generated.setdefault(owner["uid"], {})[name] = claim.key
            self._queue.add((CLAIMS, claim.key))
        for pod in self._users.get(claim.key, ()):
            self._queue.add((_PODS, pod))

    def _reconcile(self, item: tuple[str, str]) -> None:
        collection, key = item
        record = self._store.get(collection, key)
        if record is None:
            return
        if collection == CLAIMS:
            self._reconcile_claim(record)
        elif collection == POD_GROUPS:
            self._reconcile_group(record)
        elif "deletionTimestamp" not in record.metadata and not _is_done(record.object):
            self._reconcile_pod(record)

    # -- pods

    def _reconcile_pod(self, pod: Record) -> None:
        try:
            names = self._generate(pod)
        except StatusError as error:
            _log.warning("resource_claim_rejected", pod=pod.key, error=error.message)
            if self._retries.failed(pod.key) == 1:
                self._report(pod, error.message)
            return
        self._retries.forget(pod.key)
        if names:
            pod = self._write_names(pod, names)
        if pod.object["spec"].get("nodeName"):
            for entry in pod.object["spec"].get("resourceClaims") or ():
                self._reserve(pod, entry)

    def _generate(self, pod: Record) -> dict[str, str]:
        """Generate missing claims: name in the pod -> name of the claim. Raises StatusError."""
        names = {}
        for entry in pod.object["spec"].get("resourceClaims") or ():
            if (name := self._name_in_group(pod, entry)) is not None:
                if name and entry.get("resourceClaimTemplateName") and claim_name(pod.object, entry) != name:
                    names[entry["name"]] = name
                continue
            if not entry.get("resourceClaimTemplateName") or self._has_claim(pod, entry):
                continue
            existing = self._generated.get(pod.metadata["uid"], {}).get(entry["name"])
            if existing is not None:  # the status of the pod was written without it
                names[entry["name"]] = existing.rpartition("/")[2]
            elif (template := self._template(pod, entry)) is not None:
                kind = self._kinds.storing(CLAIMS)
                assert kind is not None
                body = generated_claim(pod.object, entry["name"], template.object)
                created = self._writer.create_object(Call("POST", Target(kind, pod.metadata["namespace"]), {}), body)
                names[entry["name"]] = str(created.metadata["name"])
        return names

    def _name_in_group(self, pod: Record, entry: Object) -> str | None:
        """The name of the claim of the pod's PodGroup that the entry means, empty if it is not known yet; None: it is a
        claim of the pod.
        """
        key = group_key(pod.object)
        if key is None:
            return None
        group = self._store.get(POD_GROUPS, key)
        if group is None:
            return "" if entry.get("resourceClaimTemplateName") else None
        return group_claim_name(group.object, entry) if is_of_group(group.object, entry) else None

    def _has_claim(self, pod: Record, entry: Object) -> bool:
        """Whether the pod owns the claim that its status names, or does not need one."""
        name = claim_name(pod.object, entry)
        if not name:
            return name is not None
        claim = self._store.get(CLAIMS, key_of(pod.metadata["namespace"], name))
        owner = owning_pod(claim.metadata) if claim is not None else None
        return owner is not None and owner["uid"] == pod.metadata["uid"]

    def _template(self, pod: Record, entry: Object) -> Record | None:
        key, name = _template_key(pod, entry), entry["resourceClaimTemplateName"]
        found = self._store.get(TEMPLATES, key)
        if found is None:
            waiting = self._without_template.setdefault(key, set())
            if pod.key not in waiting:
                waiting.add(pod.key)
                missing = f'resourceclaimtemplate.resource.k8s.io "{name}" not found'
                self._report(pod, f'{entry["name"]}: resource claim template "{name}": {missing}')
        return found

    def _report(self, pod: Record, problem: str) -> None:
        message = f"PodResourceClaim {problem}"
        record_event(self._store, pod, ControllerEvent("Warning", "FailedResourceClaimCreation", message, _COMPONENT))

    def _write_names(self, pod: Record, names: dict[str, str]) -> Record:
        status = pod.object.get("status") or {}
        kept = [each for each in status.get("resourceClaimStatuses") or () if each.get("name") not in names]
        added = [{"name": name, "resourceClaimName": claim} for name, claim in names.items()]
        status = {**status, "resourceClaimStatuses": [*kept, *added]}
        changed = {**pod.object, "metadata": dict(pod.metadata), "status": status}
        return self._store.put(_PODS, pod.key, changed)

    def _reserve(self, pod: Record, entry: Object) -> None:
        """Reserve an allocated claim for a bound pod: its scheduler may not have done so."""
        name = claim_name(pod.object, entry)
        if self._name_in_group(pod, entry) is not None:
            return
        if not name or (entry.get("resourceClaimTemplateName") and not self._has_claim(pod, entry)):
            return
        claim = self._store.get(CLAIMS, key_of(pod.metadata["namespace"], name))
        status = (claim.object.get("status") or {}) if claim is not None else {}
        if claim is None or not status.get("allocation") or "deletionTimestamp" in claim.metadata:
            return
        uid, reserved = pod.metadata["uid"], status.get("reservedFor") or []
        if len(reserved) >= _MAX_RESERVED or any(each["uid"] == uid for each in reserved):
            return
        user = {"resource": _PODS, "name": pod.metadata["name"], "uid": uid}
        status = {**status, "reservedFor": [*reserved, user]}
        self._store.put(CLAIMS, claim.key, {**claim.object, "metadata": dict(claim.metadata), "status": status})

    # -- PodGroups

    def _reconcile_group(self, group: Record) -> None:
        """Create the claims that a PodGroup has templates for."""
        namespace, added = group.metadata["namespace"], []
        for entry in group_entries(group.object):
            if "deletionTimestamp" in group.metadata or group_claim_name(group.object, entry):
                continue
            template = self._store.get(TEMPLATES, key_of(namespace, entry["resourceClaimTemplateName"]))
            if template is None:
                self._groups_without_template.add(group.key)
                continue
            kind = self._kinds.storing(CLAIMS)
            assert kind is not None
            body = generated_claim(group.object, entry["name"], template.object, kind="PodGroup", version=OWNER_VERSION)
            created = self._writer.create_object(Call("POST", Target(kind, namespace), {}), body)
            added.append({"name": entry["name"], "resourceClaimName": created.metadata["name"]})
        if added:
            status = group.object.get("status") or {}
            status = {**status, "resourceClaimStatuses": [*(status.get("resourceClaimStatuses") or ()), *added]}
            self._store.put(POD_GROUPS, group.key, {**group.object, "metadata": dict(group.metadata), "status": status})

    # -- claims

    def _reconcile_claim(self, claim: Record) -> None:
        reserved = (claim.object.get("status") or {}).get("reservedFor") or []
        users = [each for each in reserved if self._is_user(each, claim.metadata["namespace"])]
        is_protected = FINALIZER in (claim.metadata.get("finalizers") or ())
        is_deleted = "deletionTimestamp" in claim.metadata
        if len(users) < len(reserved) or (is_protected and is_deleted and not users):
            changed = _released(claim, users, is_protected=is_protected)
            if is_deleted and not changed["metadata"].get("finalizers"):
                self._store.remove(CLAIMS, claim.key, changed)
                return
            claim = self._store.put(CLAIMS, claim.key, changed)
        if not users and not is_deleted and self._is_orphaned(claim):
            kind = self._kinds.storing(CLAIMS)
            assert kind is not None
            self._deleter.delete_record(kind, claim)

    def _is_user(self, user: Object, namespace: str) -> bool:
        """Whether the entry of reservedFor is valid; entries for other objects than pods and PodGroups are kept."""
        if is_group(user):
            group = self._store.get(POD_GROUPS, key_of(namespace, user["name"]))
            return group is not None and group.metadata["uid"] == user["uid"]
        if user.get("apiGroup") or user["resource"] != _PODS:
            return True
        pod = self._store.get(_PODS, key_of(namespace, user["name"]))
        return pod is not None and pod.metadata["uid"] == user["uid"] and not _is_done(pod.object)

    def _is_orphaned(self, claim: Record) -> bool:
        """Whether the claim was generated for a pod that has ended or was replaced."""
        owner = owning_pod(claim.metadata)
        if owner is None:
            return False
        pod = self._store.get(_PODS, key_of(claim.metadata["namespace"], owner["name"]))
        return pod is not None and (pod.metadata["uid"] != owner["uid"] or _is_done(pod.object))


def _released(claim: Record, users: list[Object], *, is_protected: bool) -> Object:
    """The claim reserved only for `users`, and deallocated if there are none and it is protected."""
    status, metadata = dict(claim.object.get("status") or {}), dict(claim.metadata)
    if users:
        status["reservedFor"] = users
    else:
        status.pop("reservedFor", None)
        if is_protected:
            status.pop("allocation", None)
            status.pop("devices", None)
            remaining = [each for each in metadata.pop("finalizers") if each != FINALIZER]
            if remaining:
                metadata["finalizers"] = remaining
    return {**claim.object, "metadata": metadata, "status": status}


def _is_done(pod: Object) -> bool:
    """Whether no container of the pod runs or will run."""
    if (pod.get("status") or {}).get("phase") in _ENDED:
        return True
    return "deletionTimestamp" in pod["metadata"] and not pod["spec"].get("nodeName")


def _claim_keys(pod: Record) -> list[str]:
    return [key_of(pod.metadata["namespace"], name) for name in claim_names(pod.object)]


def _template_key(pod: Record, entry: Object) -> str:
    return key_of(pod.metadata["namespace"], entry.get("resourceClaimTemplateName") or "")


def _discard(index: dict[str, set[str]], key: str, member: str) -> None:
    """Remove a member from the index, and the entry with its last member."""
    if (members := index.get(key)) is not None:
        members.discard(member)
        if not members:
            del index[key]
