"""Validates requests; messages quote the invalid value."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import grpc

from muster.binding.device_claim_status import BadDeviceClaim, read_allocation
from muster.binding.extended_claims import BadExtendedClaim, check_spec
from muster.binding.v1 import binding_pb2 as pb
from muster.rpc.errors import RpcError

_MAX_SHOWN_CHARACTERS: Final = 64
_MAX_ANNOTATION_BYTES: Final = 256 * 1024  # the API's limit for a pod, keys and values together
_MAX_PATCH_BYTES: Final = 1024 * 1024  # etcd's limit for an object is 1.5 MB
_MAX_CONDITIONS: Final = 32
_is_name = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?").fullmatch

_is_key = re.compile(
    r"(?:[A-Za-z0-9](?:[-A-Za-z0-9.]{0,251}[A-Za-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
).fullmatch


_is_label = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?").fullmatch
_is_plural = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?").fullmatch
_is_api_version = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?v[a-z0-9]{1,31}").fullmatch
_is_condition_type = _is_key
_is_condition_reason = re.compile(r"[A-Za-z](?:[A-Za-z0-9_,:]{0,1022}[A-Za-z0-9_])?").fullmatch


def validate_bind(request: pb.BindRequest) -> None:
    """Raises RpcError: INVALID_ARGUMENT."""
    _check_pods(request.pods)
    _check_device_claims(request.pods)
    for pod in request.pods:
        if not _is_name(pod.node):
            raise _invalid(f"{_named(pod)}: node {quoted(pod.node)} is not a valid node name")
        for claim in pod.claims:
            if not _is_name(claim):
                raise _invalid(f"{_named(pod)}: claim {quoted(claim)} is not a valid name")
        if problem := _labels_problem(pod.labels):
            raise _invalid(f"{_named(pod)}: {problem}")


def validate_evict(request: pb.EvictRequest) -> None:
    """Raises RpcError: INVALID_ARGUMENT."""
    _check_pods(request.pods)


def validate_deallocate(request: pb.DeallocateRequest) -> None:
    """Raises RpcError: INVALID_ARGUMENT."""
    seen: set[str] = set()
    for claim in request.claims:
        for pod in (claim.pod, *claim.sharing):
            if not (_is_name(pod.namespace) and _is_name(pod.name)):
                raise _invalid(f"{_named(pod)}: not a valid namespace/name")
            if not pod.uid:
                raise _invalid(f"{_named(pod)}: no uid")
            if pod.namespace != claim.pod.namespace:
                raise _invalid(f"{_named(pod)}: not in the namespace of {_named(claim.pod)}")
        where = f"ResourceClaim {quoted(claim.name)} of {_named(claim.pod)}"
        if not _is_name(claim.name):
            raise _invalid(f"{where}: not a valid name")
        if not claim.uid:
            raise _invalid(f"{where}: no uid")
        if not claim.resource_version:
            raise _invalid(f"{where}: no resource version")
        if claim.uid in seen:
            raise _invalid(f"{where}: uid {quoted(claim.uid)} is given twice")
        seen.add(claim.uid)


def condition_problem(condition: pb.PodCondition) -> str:
    """The problem of a condition; empty if it is valid. The others of the request are written anyway."""
    where = f"condition {quoted(condition.type)} of pod {quoted(condition.namespace + '/' + condition.name)}"
    if not (_is_name(condition.namespace) and _is_name(condition.name)):
        return f"{where}: not a valid namespace/name"
    if not condition.uid:
        return f"{where}: no uid"
    if not condition.type:
        return f"{where}: no type"
    if condition.status not in ("True", "False", "Unknown"):
        return f"{where}: status {quoted(condition.status)} is not True, False or Unknown"
    if condition.nominated_node and not _is_name(condition.nominated_node):
        return f"{where}: nominated node {quoted(condition.nominated_node)} is not a valid node name"
    return ""


def annotations_problem(annotations: pb.PodAnnotations) -> str:
    """The problem of a pod's annotations and labels; empty if they are valid."""
    pod = annotations.pod
    where = f"{metadata_kind(annotations)} of {_named(pod)}"
    if not (_is_name(pod.namespace) and _is_name(pod.name)):
        return f"{where}: not a valid namespace/name"
    if not pod.uid:
        return f"{where}: no uid"
    for key in (*annotations.set, *annotations.remove, *annotations.remove_labels):
        if not _is_key(key):
            return f"{where}: {quoted(key)} is not a valid key"
    if problem := _labels_problem(annotations.set_labels):
        return f"{where}: {problem}"
    both = [
        *sorted(set(annotations.set).intersection(annotations.remove)),
        *sorted(set(annotations.set_labels).intersection(annotations.remove_labels)),
    ]
    if both:
        return f"{where}: {quoted(both[0])} is both set and removed"
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.set.items())
    if size > _MAX_ANNOTATION_BYTES:
        return f"{where}: {size} bytes; the limit is {_MAX_ANNOTATION_BYTES}"
    return ""


def metadata_kind(annotations: pb.PodAnnotations) -> str:
    """The word "labels" if only labels are written, else "annotations"; for messages."""
    of_annotations = annotations.set or annotations.remove
    of_labels = annotations.set_labels or annotations.remove_labels
    return "labels" if of_labels and not of_annotations else "annotations"


def object_patch_problem(patch: pb.ObjectPatch) -> str:
    """The problem of an object patch; empty if it is valid. The merge patch is checked once it is decoded."""
    about = patch.object
    where = object_text(patch)
    if not (_is_name(about.namespace) and _is_name(about.name)):
        return f"{where}: not a valid namespace/name"
    if not about.uid:
        return f"{where}: no uid"
    if not _is_api_version(about.api_version) or not _is_plural(patch.plural):
        kind = f"{patch.plural} of {about.api_version}"
        return f"{where}: {quoted(kind)} is not a plural and API version like 'podgroups of scheduling.k8s.io/v1beta1'"
    if patch.subresource not in ("", "status"):
        return f"{where}: subresource {quoted(patch.subresource)} is neither status nor empty"
    if len(patch.merge_patch) > _MAX_PATCH_BYTES:
        return f"{where}: a patch of {len(patch.merge_patch)} bytes; the limit is {_MAX_PATCH_BYTES}"
    return _conditions_problem(where, patch.conditions)


def object_text(patch: pb.ObjectPatch) -> str:
    """Kind, namespace and name of the object, for messages."""
    about = patch.object
    return f"{about.kind or patch.plural} {quoted(about.namespace + '/' + about.name)}"


def _conditions_problem(where: str, conditions: Sequence[pb.ObjectCondition]) -> str:
    if len(conditions) > _MAX_CONDITIONS:
        return f"{where}: {len(conditions)} conditions; the limit is {_MAX_CONDITIONS}"
    types = [each.type for each in conditions]
    for each in conditions:
        condition = f"{where}: condition {quoted(each.type)}"
        if not _is_condition_type(each.type):
            return f"{condition}: not a valid type"
        if types.count(each.type) > 1:
            return f"{condition} is given twice"
        if each.status not in ("True", "False", "Unknown"):
            return f"{condition}: status {quoted(each.status)} is not True, False or Unknown"
        if not _is_condition_reason(each.reason):
            return f"{condition}: reason {quoted(each.reason)} is not valid: it must be a word such as Unschedulable"
    return ""


def event_problem(event: pb.Event) -> str:
    """The problem of an event; empty if it is valid."""
    about = event.regarding
    where = f"event {quoted(event.reason)} about {about.kind} {quoted(about.namespace + '/' + about.name)}"
    if not about.kind or not _is_name(about.name) or (about.namespace and not _is_name(about.namespace)):
        return f"{where}: no kind, or not a valid name"
    if event.type not in ("Normal", "Warning"):
        return f"{where}: type {quoted(event.type)} is not Normal or Warning"
    if not event.reason or not event.action:
        return f"{where}: no reason or no action"
    return ""


def quoted(text: str) -> str:
    """The value for messages, escaped and cut when long."""
    return repr(text if len(text) <= _MAX_SHOWN_CHARACTERS else text[: _MAX_SHOWN_CHARACTERS - 1] + "…")


def _labels_problem(labels: Mapping[str, str]) -> str:
    for key, value in labels.items():
        if not _is_key(key):
            return f"{quoted(key)} is not a valid key"
        if not _is_label(value):
            return f"label {quoted(key)}: {quoted(value)} is not a valid value"
    return ""


def _check_pods(pods: Iterable[pb.PodBinding | pb.PodName]) -> None:
    """Check that every pod has a uid, a namespace and a name, and is given once. Raises RpcError."""
    uids: set[str] = set()
    for pod in pods:
        if not pod.uid:
            raise _invalid(f"{_named(pod)} has no uid")
        if pod.uid in uids:
            raise _invalid(f"uid {quoted(pod.uid)} ({_named(pod)}) is given twice")
        uids.add(pod.uid)
        if not (_is_name(pod.namespace) and _is_name(pod.name)):
            raise _invalid(f"{_named(pod)} is not a valid namespace/name")


def _check_device_claims(pods: Iterable[pb.PodBinding]) -> None:
    """Check that every ResourceClaim has a name, a uid and a readable allocation, is given once per pod, and that pods
    which share one agree about it. Raises RpcError.
    """
    allocations: dict[tuple[str, str], bytes] = {}
    uids: dict[tuple[str, str], str] = {}
    for pod in pods:
        seen: set[str] = set()
        for claim in pod.device_claims:
            where, key = f"{_named(pod)}: ResourceClaim {quoted(claim.name)}", (pod.namespace, claim.name)
            if not _is_name(claim.name):
                raise _invalid(f"{where} is not a valid name")
            if not claim.uid:
                raise _invalid(f"{where} has no uid")
            if claim.group_uid and not _is_name(claim.group_name):
                raise _invalid(f"{where}: PodGroup {quoted(claim.group_name)} is not a valid name")
            if claim.name in seen:
                raise _invalid(f"{where} is given twice")
            seen.add(claim.name)
            if uids.setdefault(key, claim.uid) != claim.uid:
                raise _invalid(f"{where} has uid {quoted(claim.uid)}; another pod gives {quoted(uids[key])}")
            if claim.allocation and allocations.setdefault(key, claim.allocation) != claim.allocation:
                raise _invalid(f"{where} has another allocation than another pod gives")
            if problem := _allocation_problem(claim.allocation):
                raise _invalid(f"{where}: {problem}")
        if pod.HasField("extended_claim") and (problem := _extended_claim_problem(pod.extended_claim)):
            raise _invalid(f"{_named(pod)}: the claim for extended resources: {problem}")


def _extended_claim_problem(claim: pb.ExtendedClaim) -> str:
    if len(claim.spec) > _MAX_PATCH_BYTES:
        return f"a spec of {len(claim.spec)} bytes; the limit is {_MAX_PATCH_BYTES}"
    try:
        check_spec(claim.spec)
    except BadExtendedClaim as error:
        return f"spec {quoted(claim.spec.decode(errors='replace'))}: {error}"
    if not claim.allocation:
        return "it has no allocation"
    if not claim.mappings or not all(each.container and each.resource and each.request for each in claim.mappings):
        return "mappings need a container, a resource and a request each"
    return _allocation_problem(claim.allocation)


def _allocation_problem(allocation: bytes) -> str:
    if len(allocation) > _MAX_PATCH_BYTES:
        return f"an allocation of {len(allocation)} bytes; the limit is {_MAX_PATCH_BYTES}"
    try:
        if allocation:
            read_allocation(allocation)
    except BadDeviceClaim as error:
        return f"allocation {quoted(allocation.decode(errors='replace'))}: {error}"
    return ""


def _named(pod: pb.PodBinding | pb.PodName) -> str:
    return f"pod {quoted(pod.namespace + '/' + pod.name)}"


def _invalid(problem: str) -> RpcError:
    return RpcError(grpc.StatusCode.INVALID_ARGUMENT, problem)
