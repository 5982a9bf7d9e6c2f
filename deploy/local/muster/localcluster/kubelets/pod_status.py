"""Status patches and events of pods, as kubelets write them."""

from typing import Any

import msgspec

from muster.localcluster.kubelets.admission import Rejection
from muster.localcluster.kubelets.pod_types import RunPod

Status = dict[str, Any]


def running(pod: RunPod, address: str, node_address: str, now: str) -> bytes:
    """Patch for a pod whose containers run."""
    state = {"running": {"startedAt": now}}
    status: Status = {
        "phase": "Running",
        "startTime": pod.status.start_time or now,
        "hostIP": node_address,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": _conditions(ready=True, reason="", now=now),
        "containerStatuses": [_container(each.name, each.image, state) for each in pod.spec.containers or ()],
    }
    if pod.spec.init_containers:
        ended = _terminated(0, now, now)
        status["initContainerStatuses"] = [
            _container(each.name, each.image, state if each.restart_policy == "Always" else ended)
            for each in pod.spec.init_containers
        ]
    return _patch(pod, status)


def waiting(pod: RunPod, now: str) -> bytes:
    """Patch for a pod whose containers cannot be created yet."""
    reason = "PodInitializing" if pod.spec.init_containers else "ContainerCreating"
    state = {"waiting": {"reason": reason}}
    status: Status = {
        "phase": "Pending",
        "startTime": pod.status.start_time or now,
        "conditions": _conditions(ready=False, reason="ContainersNotReady", now=now),
        "containerStatuses": [_container(each.name, each.image, state) for each in pod.spec.containers or ()],
    }
    return _patch(pod, status)


def ended(pod: RunPod, exit_code: int, started: str, now: str) -> bytes:
    """Patch for a pod whose containers have ended for good."""
    state = _terminated(exit_code, started, now)
    reason = "PodFailed" if exit_code else "PodCompleted"
    status: Status = {
        "phase": "Failed" if exit_code else "Succeeded",
        "conditions": _conditions(ready=False, reason=reason, now=now),
        "containerStatuses": [_container(each.name, each.image, state) for each in pod.spec.containers or ()],
    }
    return _patch(pod, status)


def rejected(pod: RunPod, rejection: Rejection, now: str) -> bytes:
    """Patch for a pod that was rejected at admission."""
    message = f"Pod was rejected: {rejection.message}"
    return _patch(pod, {"phase": "Failed", "reason": rejection.reason, "message": message, "startTime": now})


def warning_event(pod: RunPod, reason: str, message: str, now: str) -> bytes:
    """Event about a pod by the kubelet of its node."""
    metadata = pod.metadata
    pod_reference = {"kind": "Pod", "apiVersion": "v1", "namespace": metadata.namespace, "name": metadata.name}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{metadata.name[:50].rstrip('.-')}.", "namespace": metadata.namespace},
        "involvedObject": pod_reference | {"uid": metadata.uid},
        "reason": reason,
        "message": message,
        "source": {"component": "kubelet", "host": pod.spec.node_name},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        "type": "Warning",
    }
    return msgspec.json.encode(event)


def _patch(pod: RunPod, status: Status) -> bytes:
    # The uid keeps the patch from a later pod of the same name.
    return msgspec.json.encode({"metadata": {"uid": pod.metadata.uid}, "status": status})


def _conditions(*, ready: bool, reason: str, now: str) -> list[Status]:
    readiness = "True" if ready else "False"
    states = {
        "Initialized": "True",
        "PodReadyToStartContainers": readiness,
        "Ready": readiness,
        "ContainersReady": readiness,
    }
    listed = []
    for name, status in states.items():
        condition: Status = {"type": name, "status": status, "lastProbeTime": None, "lastTransitionTime": now}
        if reason and name in ("Ready", "ContainersReady"):
            condition["reason"] = reason
        listed.append(condition)
    return listed


def _container(name: str, image: str, state: Status) -> Status:
    is_running = "running" in state
    return {
        "name": name,
        "image": image,
        "imageID": "",
        "ready": is_running,
        "started": is_running,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }


def _terminated(exit_code: int, started: str, now: str) -> Status:
    reason = "Error" if exit_code else "Completed"
    return {"terminated": {"exitCode": exit_code, "reason": reason, "startedAt": started, "finishedAt": now}}
