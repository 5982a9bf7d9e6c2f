"""What a request must be like; what is wrong is quoted."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import grpc

from muster.binding.v1 import binding_pb2 as pb
from muster.rpc.errors import RpcError

_SHOWN_CHARACTERS: Final = 64
_MOST_ANNOTATION_BYTES: Final = 256 * 1024  # what the API takes of a pod, keys and values together
_MOST_PATCH_BYTES: Final = 1024 * 1024  # etcd takes little more in an object
_MOST_CONDITIONS: Final = 32
_is_name = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?").fullmatch

_is_key = re.compile(
    r"(?:[A-Za-z0-9](?:[-A-Za-z0-9.]{0,251}[A-Za-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
).fullmatch


_is_label = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?").fullmatch
_is_plural = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?").fullmatch
_is_api_version = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?v[a-z0-9]{1,31}").fullmatch
_is_condition_type = _is_key
_is_condition_reason = re.compile(r"[A-Za-z](?:[A-Za-z0-9_,:]{0,1022}[A-Za-z0-9_])?").fullmatch


def check_bind(request: pb.BindRequest) -> None:
    """Raises RpcError: INVALID_ARGUMENT."""
    _check_pods(request.pods)
    for pod in request.pods:
        if not _is_name(pod.node):
            raise _bad(f"{_of(pod)} is to go to node {quoted(pod.node)}, which is no name that Kubernetes allows")
        for claim in pod.claims:
            if not _is_name(claim):
                raise _bad(f"{_of(pod)} uses claim {quoted(claim)}, which is no name that Kubernetes allows")
        if problem := _problem_of_labels(pod.labels):
            raise _bad(f"{_of(pod)}: {problem}")


def check_evict(request: pb.EvictRequest) -> None:
    """Raises RpcError: INVALID_ARGUMENT."""
    _check_pods(request.pods)


def problem_of_condition(condition: pb.PodCondition) -> str:
    """What is wrong with it; empty if nothing is. One bad condition must not hold up the others of its request."""
    where = f"condition {quoted(condition.type)} of pod {quoted(condition.namespace + '/' + condition.name)}"
    if not (_is_name(condition.namespace) and _is_name(condition.name)):
        return f"{where}: no namespace/name that Kubernetes allows"
    if not condition.uid:
        return f"{where}: no uid"
    if not condition.type:
        return f"{where}: no type"
    if condition.status not in ("True", "False", "Unknown"):
        return f"{where}: status {quoted(condition.status)} is not True, False or Unknown"
    return ""


def problem_of_annotations(annotations: pb.PodAnnotations) -> str:
    """What is wrong with them; empty if nothing is."""
    pod = annotations.pod
    where = f"{named_marks(annotations)} of {_of(pod)}"
    if not (_is_name(pod.namespace) and _is_name(pod.name)):
        return f"{where}: no namespace/name that Kubernetes allows"
    if not pod.uid:
        return f"{where}: no uid"
    for key in (*annotations.set, *annotations.remove, *annotations.remove_labels):
        if not _is_key(key):
            return f"{where}: {quoted(key)} is no key that Kubernetes allows"
    if problem := _problem_of_labels(annotations.set_labels):
        return f"{where}: {problem}"
    both = [
        *sorted(set(annotations.set).intersection(annotations.remove)),
        *sorted(set(annotations.set_labels).intersection(annotations.remove_labels)),
    ]
    if both:
        return f"{where}: {quoted(both[0])} is to be set and to be removed"
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.set.items())
    if size > _MOST_ANNOTATION_BYTES:
        return f"{where}: {size} bytes; Kubernetes allows {_MOST_ANNOTATION_BYTES}"
    return ""


def named_marks(annotations: pb.PodAnnotations) -> str:
    """What it is about, for messages."""
    of_annotations = annotations.set or annotations.remove
    of_labels = annotations.set_labels or annotations.remove_labels
    return "labels" if of_labels and not of_annotations else "annotations"


def problem_of_object(patch: pb.ObjectPatch) -> str:
    """What is wrong with it; empty if nothing is. What the patch itself says is looked at when it is read."""
    about = patch.object
    where = named_object(patch)
    if not (_is_name(about.namespace) and _is_name(about.name)):
        return f"{where}: no namespace/name that Kubernetes allows"
    if not about.uid:
        return f"{where}: no uid"
    if not _is_api_version(about.api_version) or not _is_plural(patch.plural):
        kind = f"{patch.plural} of {about.api_version}"
        return f"{where}: {quoted(kind)} is no kind as paths have it, e.g. 'podgroups of scheduling.k8s.io/v1beta1'"
    if patch.subresource not in ("", "status"):
        return f"{where}: subresource {quoted(patch.subresource)} is not status or empty"
    if len(patch.merge_patch) > _MOST_PATCH_BYTES:
        return f"{where}: a patch of {len(patch.merge_patch)} bytes; {_MOST_PATCH_BYTES} are allowed"
    return _problem_of_conditions(where, patch.conditions)


def named_object(patch: pb.ObjectPatch) -> str:
    """The object, for messages."""
    about = patch.object
    return f"{about.kind or patch.plural} {quoted(about.namespace + '/' + about.name)}"


def _problem_of_conditions(where: str, conditions: Sequence[pb.ObjectCondition]) -> str:
    if len(conditions) > _MOST_CONDITIONS:
        return f"{where}: {len(conditions)} conditions; {_MOST_CONDITIONS} are allowed"
    types = [each.type for each in conditions]
    for each in conditions:
        condition = f"{where}: condition {quoted(each.type)}"
        if not _is_condition_type(each.type):
            return f"{condition}: no type that Kubernetes allows"
        if types.count(each.type) > 1:
            return f"{condition} is there twice"
        if each.status not in ("True", "False", "Unknown"):
            return f"{condition}: status {quoted(each.status)} is not True, False or Unknown"
        if not _is_condition_reason(each.reason):
            return (
                f"{condition}: {quoted(each.reason)} is no reason that Kubernetes allows: a word such as Unschedulable"
            )
    return ""


def problem_of_event(event: pb.Event) -> str:
    """What is wrong with it; empty if nothing is."""
    about = event.regarding
    where = f"event {quoted(event.reason)} about {about.kind} {quoted(about.namespace + '/' + about.name)}"
    if not about.kind or not _is_name(about.name) or (about.namespace and not _is_name(about.namespace)):
        return f"{where}: no kind, or no name that Kubernetes allows"
    if event.type not in ("Normal", "Warning"):
        return f"{where}: type {quoted(event.type)} is not Normal or Warning"
    if not event.reason or not event.action:
        return f"{where}: no reason or no action"
    return ""


def quoted(text: str) -> str:
    """For messages: the value, cut when long."""
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…")


def _problem_of_labels(labels: Mapping[str, str]) -> str:
    for key, value in labels.items():
        if not _is_key(key):
            return f"{quoted(key)} is no key that Kubernetes allows"
        if not _is_label(value):
            return f"label {quoted(key)}: {quoted(value)} is no value that Kubernetes allows"
    return ""


def _check_pods(pods: Iterable[pb.PodBinding | pb.PodName]) -> None:
    """Each has what names it, and is there once."""
    uids: set[str] = set()
    for pod in pods:
        if not pod.uid:
            raise _bad(f"{_of(pod)} has no uid")
        if pod.uid in uids:
            raise _bad(f"uid {quoted(pod.uid)} ({_of(pod)}) is there twice")
        uids.add(pod.uid)
        if not (_is_name(pod.namespace) and _is_name(pod.name)):
            raise _bad(f"{_of(pod)} is no namespace/name that Kubernetes allows")


def _of(pod: pb.PodBinding | pb.PodName) -> str:
    return f"pod {quoted(pod.namespace + '/' + pod.name)}"


def _bad(problem: str) -> RpcError:
    return RpcError(grpc.StatusCode.INVALID_ARGUMENT, problem)
