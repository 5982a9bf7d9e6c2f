"""What kubelets write into the status of pods."""

from typing import Any

import msgspec

from muster.localcluster.kubelets.admission import Refusal
from muster.localcluster.kubelets.wire import RunPod

Status = dict[str, Any]


def running(pod: RunPod, address: str, node_address: str, now: str, restarts: int = 0) -> bytes:
    """All containers were started: one patch says it all."""
    state = {"running": {"startedAt": now}}
    status: Status = {
        "phase": "Running",
        "startTime": pod.status.start_time or now,
        "hostIP": node_address,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": _conditions(ready=True, reason="", now=now),
        "containerStatuses": [_container(each.name, each.image, state, restarts) for each in pod.spec.containers or ()],
    }
    if pod.spec.init_containers:
        ended = _terminated(0, now, now)
        status["initContainerStatuses"] = [
            _container(each.name, each.image, state if each.restart_policy == "Always" else ended, 0)
            for each in pod.spec.init_containers
        ]
    return _patch(pod, status)


def ended(pod: RunPod, exit_code: int, started: str, now: str, restarts: int) -> bytes:
    """All containers have ended and are not started again."""
    state = _terminated(exit_code, started, now)
    reason = "PodFailed" if exit_code else "PodCompleted"
    status: Status = {
        "phase": "Failed" if exit_code else "Succeeded",
        "conditions": _conditions(ready=False, reason=reason, now=now),
        "containerStatuses": [_container(each.name, each.image, state, restarts) for each in pod.spec.containers or ()],
    }
    return _patch(pod, status)


def backing_off(pod: RunPod, exit_code: int, started: str, now: str, restarts: int) -> bytes:
    """The containers have ended and wait to be started again."""
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off restarting failed container"}}
    last = _terminated(exit_code, started, now)
    containers = [_container(each.name, each.image, waiting, restarts) for each in pod.spec.containers or ()]
    for container in containers:
        container["lastState"] = last
    status = {
        "conditions": _conditions(ready=False, reason="ContainersNotReady", now=now),
        "containerStatuses": containers,
    }
    return _patch(pod, status)


def rejected(pod: RunPod, refusal: Refusal, now: str) -> bytes:
    """The kubelet did not take the pod."""
    message = f"Pod was rejected: {refusal.message}"
    return _patch(pod, {"phase": "Failed", "reason": refusal.reason, "message": message, "startTime": now})


def rejection_event(pod: RunPod, refusal: Refusal, node: str, now: str) -> bytes:
    """The event that goes with it."""
    metadata = pod.metadata
    about = {"kind": "Pod", "apiVersion": "v1", "namespace": metadata.namespace, "name": metadata.name}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{metadata.name[:50].rstrip('.-')}.", "namespace": metadata.namespace},
        "involvedObject": about | {"uid": metadata.uid},
        "reason": refusal.reason,
        "message": refusal.message,
        "source": {"component": "kubelet", "host": node},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        "type": "Warning",
    }
    return msgspec.json.encode(event)


def _patch(pod: RunPod, status: Status) -> bytes:
    # With the uid, a pod of the same name that came later is left alone.
    return msgspec.json.encode({"metadata": {"uid": pod.metadata.uid}, "status": status})


def _conditions(*, ready: bool, reason: str, now: str) -> list[Status]:
    whether = "True" if ready else "False"
    states = {"Initialized": "True", "PodReadyToStartContainers": whether, "Ready": whether, "ContainersReady": whether}
    listed = []
    for name, status in states.items():
        condition: Status = {"type": name, "status": status, "lastProbeTime": None, "lastTransitionTime": now}
        if reason and name in ("Ready", "ContainersReady"):
            condition["reason"] = reason
        listed.append(condition)
    return listed


def _container(name: str, image: str, state: Status, restarts: int) -> Status:
    up = "running" in state
    return {
        "name": name,
        "image": image,
        "imageID": "",
        "ready": up,
        "started": up,
        "restartCount": restarts,
        "state": state,
        "lastState": {},
    }


def _terminated(exit_code: int, started: str, now: str) -> Status:
    reason = "Error" if exit_code else "Completed"
    return {"terminated": {"exitCode": exit_code, "reason": reason, "startedAt": started, "finishedAt": now}}
