"""What a request must be like; what is wrong is quoted."""

import re
from collections.abc import Iterable
from typing import Final

import grpc

from muster.binding.v1 import binding_pb2 as pb
from muster.rpc.errors import RpcError

_SHOWN_CHARACTERS: Final = 64
_MOST_ANNOTATION_BYTES: Final = 256 * 1024  # what the API takes of a pod, keys and values together
_is_name = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?").fullmatch

_is_key = re.compile(
    r"(?:[A-Za-z0-9](?:[-A-Za-z0-9.]{0,251}[A-Za-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
).fullmatch


def check_bind(request: pb.BindRequest) -> None:
    """Raises RpcError: INVALID_ARGUMENT."""
    _check_pods(request.pods)
    for pod in request.pods:
        if not _is_name(pod.node):
            raise _bad(f"{_of(pod)} is to go to node {quoted(pod.node)}, which is no name that Kubernetes allows")
        for claim in pod.claims:
            if not _is_name(claim):
                raise _bad(f"{_of(pod)} uses claim {quoted(claim)}, which is no name that Kubernetes allows")


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
    where = f"annotations of {_of(pod)}"
    if not (_is_name(pod.namespace) and _is_name(pod.name)):
        return f"{where}: no namespace/name that Kubernetes allows"
    if not pod.uid:
        return f"{where}: no uid"
    for key in (*annotations.set, *annotations.remove):
        if not _is_key(key):
            return f"{where}: {quoted(key)} is no key that Kubernetes allows"
    both = sorted(set(annotations.set).intersection(annotations.remove))
    if both:
        return f"{where}: {quoted(both[0])} is to be set and to be removed"
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.set.items())
    if size > _MOST_ANNOTATION_BYTES:
        return f"{where}: {size} bytes; Kubernetes allows {_MOST_ANNOTATION_BYTES}"
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
