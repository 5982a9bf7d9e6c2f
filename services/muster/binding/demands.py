"""What a request must be like; what is wrong is quoted."""

import re
from typing import Final

import grpc

from muster.binding.v1 import binding_pb2 as pb
from muster.rpc.errors import RpcError

_SHOWN_CHARACTERS: Final = 64
_is_name = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?").fullmatch


def check_bind(request: pb.BindRequest) -> None:
    """Raises RpcError: INVALID_ARGUMENT."""
    uids: set[str] = set()
    for pod in request.pods:
        where = f"pod {quoted(pod.namespace + '/' + pod.name)}"
        if not pod.uid:
            raise _bad(f"{where} has no uid")
        if pod.uid in uids:
            raise _bad(f"uid {quoted(pod.uid)} ({where}) is there twice")
        uids.add(pod.uid)
        if not (_is_name(pod.namespace) and _is_name(pod.name)):
            raise _bad(f"{where} is no namespace/name that Kubernetes allows")
        if not _is_name(pod.node):
            raise _bad(f"{where} is to go to node {quoted(pod.node)}, which is no name that Kubernetes allows")


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


def _bad(problem: str) -> RpcError:
    return RpcError(grpc.StatusCode.INVALID_ARGUMENT, problem)
