"""Table of pods in kubectl's format, with the STATUS column."""

from typing import Any, Final

from muster.localcluster.apiserver.clock import age
from muster.localcluster.apiserver.kinds import AGE_COLUMN, NAME_COLUMN, Column, TableForm
from muster.localcluster.apiserver.store import Object

_NONE: Final = "<none>"


def _cells(pod: Object, now: float) -> list[Any]:
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    statuses = status.get("containerStatuses") or []
    ready = sum(bool(each.get("ready")) for each in statuses)
    restarts = sum(each.get("restartCount", 0) for each in statuses)
    return [
        metadata["name"],
        f"{ready}/{len(spec.get('containers') or ())}",
        _status_text(metadata, spec, status),
        str(restarts),
        age(metadata.get("creationTimestamp"), now),
        status.get("podIP") or _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        _NONE,
    ]


def _status_text(metadata: Object, spec: Object, status: Object) -> str:
    text = status.get("reason") or status.get("phase") or "Unknown"
    if spec.get("schedulingGates") and not spec.get("nodeName"):
        text = "SchedulingGated"
    initializing = _init_status_text(spec, status)
    text = initializing or _container_status_text(status, text)
    if "deletionTimestamp" in metadata:
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return text


def _init_status_text(spec: Object, status: Object) -> str:
    """Status of the init containers; empty when they are done."""
    statuses = status.get("initContainerStatuses") or []
    for index, each in enumerate(statuses):
        state = each.get("state") or {}
        if (state.get("terminated") or {}).get("exitCode") == 0 or each.get("started"):
            continue
        if terminated := state.get("terminated"):
            return f"Init:{terminated.get('reason') or 'ExitCode:' + str(terminated.get('exitCode'))}"
        reason = (state.get("waiting") or {}).get("reason")
        if reason and reason != "PodInitializing":
            return f"Init:{reason}"
        return f"Init:{index}/{len(spec.get('initContainers') or ())}"
    return ""


def _container_status_text(status: Object, text: str) -> str:
    running = False
    for each in reversed(status.get("containerStatuses") or []):
        state = each.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated") or {}
        if waiting.get("reason"):
            text = waiting["reason"]
        elif terminated:
            text = terminated.get("reason") or f"ExitCode:{terminated.get('exitCode', 0)}"
        elif each.get("ready") and "running" in state:
            running = True
    return "Running" if text == "Completed" and running else text


PODS: Final = TableForm(
    (
        NAME_COLUMN,
        Column("Ready", description="Containers that are ready, of all."),
        Column("Status", description="How the pod is, in one word."),
        Column("Restarts", description="How often its containers were started again."),
        AGE_COLUMN,
        Column("IP", priority=1, description="Address of the pod."),
        Column("Node", priority=1, description="Node that the pod is bound to."),
        Column("Nominated Node", priority=1, description="Node on which lower-priority pods are evicted for this pod."),
        Column("Readiness Gates", priority=1, description="Conditions that must be true beside the containers'."),
    ),
    _cells,
)
