"""Defaults of pods that schedulers and users see."""

from collections.abc import Iterator
from typing import Any, Final

from muster.localcluster.apiserver.clock import now_text
from muster.localcluster.apiserver.store import Object

_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_EVICTION_SECONDS: Final = 300
_NODE_PROBLEMS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def default_pod_spec(spec: Object, *, restarts: bool = True) -> None:
    """Set defaults of a pod spec or pod template. `restarts`: restartPolicy defaults to Always."""
    if restarts:
        spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    for container in containers_of(spec):
        _default_container(container)


def default_pod(pod: Object) -> None:
    """Set defaults of a pod."""
    spec = pod["spec"]
    default_pod_spec(spec)
    for container in containers_of(spec):
        _requests_from_limits(container.get("resources"))
    spec.setdefault("enableServiceLinks", True)
    if spec.get("serviceAccountName"):
        spec.setdefault("serviceAccount", spec["serviceAccountName"])


def add_default_tolerations(spec: Object) -> None:
    """Default tolerations: five minutes on nodes that are not ready or unreachable."""
    tolerations: list[Any] = spec.setdefault("tolerations", [])
    for key in _NODE_PROBLEMS:
        if not any(_tolerates(each, key) for each in tolerations):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _EVICTION_SECONDS}
            )


def new_pod_status(spec: Object) -> Object:
    """Status of a new pod."""
    status: Object = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": now_text(),
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]
    return status


def qos_class(spec: Object) -> str:
    """QoS class: Guaranteed, Burstable or BestEffort."""
    guaranteed, best_effort = True, True
    for container in containers_of(spec):
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        if any(
            name in amounts and amounts[name] != "0" for amounts in (requests, limits) for name in ("cpu", "memory")
        ):
            best_effort = False
        if any(name not in limits or requests.get(name) != limits[name] for name in ("cpu", "memory")):
            guaranteed = False
    return "BestEffort" if best_effort else "Guaranteed" if guaranteed else "Burstable"


def containers_of(spec: Object) -> Iterator[Object]:
    """Init containers and containers."""
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def _default_container(container: Object) -> None:
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = _pull_policy(container.get("image") or "")
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for name in _PROBES:
        if name in container:
            _default_probe(container[name])


def _pull_policy(image: str) -> str:
    last = image.rpartition("/")[2]
    tag = last.partition(":")[2]
    return "Always" if "@" not in last and tag in ("", "latest") else "IfNotPresent"


def _default_probe(probe: Object) -> None:
    probe.setdefault("timeoutSeconds", 1)
    probe.setdefault("periodSeconds", 10)
    probe.setdefault("successThreshold", 1)
    probe.setdefault("failureThreshold", 3)
    if "httpGet" in probe:
        probe["httpGet"].setdefault("path", "/")
        probe["httpGet"].setdefault("scheme", "HTTP")


def _requests_from_limits(resources: Object | None) -> None:
    if resources and resources.get("limits"):
        requests = resources.setdefault("requests", {})
        for name, amount in resources["limits"].items():
            requests.setdefault(name, amount)


def _tolerates(toleration: Object, key: str) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")
