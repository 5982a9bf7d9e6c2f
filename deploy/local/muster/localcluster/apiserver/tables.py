"""Tables of built-in kinds other than pods, in kubectl's format."""

from collections.abc import Mapping
from typing import Any, Final

from muster.localcluster.apiserver.clock import age, duration, parse_time
from muster.localcluster.apiserver.kinds import AGE_COLUMN, NAME_COLUMN, Cells, Column, TableForm
from muster.localcluster.apiserver.store import Object

_NONE: Final = "<none>"
_UNKNOWN: Final = "<unknown>"
_ROLE: Final = "node-role.kubernetes.io/"


def _form(columns: str, cells: Cells) -> TableForm:
    """Columns by name; suffix ":i" for integers, ":b" for booleans, "+" for -o wide only."""
    made = []
    for text in columns.split(","):
        name, _, mark = text.strip().partition(":")
        wide = name.startswith("+")
        if name == "Name":
            made.append(NAME_COLUMN)
        elif name == "Age":
            made.append(AGE_COLUMN)
        else:
            kind = {"i": "integer", "b": "boolean"}.get(mark, "string")
            made.append(Column(name.removeprefix("+"), kind, int(wide)))
    return TableForm(tuple(made), cells)


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _age(obj: Object, now: float) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _joined(values: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((values or {}).items())) or _NONE


def _node(node: Object, now: float) -> list[Any]:
    spec, status = node.get("spec") or {}, node.get("status") or {}
    ready = [each for each in status.get("conditions") or () if each.get("type") == "Ready"]
    word = ("Ready" if ready[0].get("status") == "True" else "NotReady") if ready else "Unknown"
    labels = node["metadata"].get("labels") or {}
    roles = sorted(key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE))
    addresses = {each.get("type"): each.get("address") for each in status.get("addresses") or ()}
    about = status.get("nodeInfo") or {}
    return [
        _name(node),
        f"{word},SchedulingDisabled" if spec.get("unschedulable") else word,
        ",".join(roles) or _NONE,
        _age(node, now),
        about.get("kubeletVersion", ""),
        addresses.get("InternalIP") or _NONE,
        addresses.get("ExternalIP") or _NONE,
        about.get("osImage") or _UNKNOWN,
        about.get("kernelVersion") or _UNKNOWN,
        about.get("containerRuntimeVersion") or _UNKNOWN,
    ]


def _event(event: Object, now: float) -> list[Any]:
    about, source, series = event.get("involvedObject") or {}, event.get("source") or {}, event.get("series") or {}
    first = event.get("firstTimestamp") or event.get("eventTime")
    last = series.get("lastObservedTime") or event.get("lastTimestamp") or first
    count = series.get("count") or event.get("count") or 1
    last_seen = age(last, now)
    if series or (count > 1 and first):
        last_seen = f"{last_seen} (x{count} over {age(first, now)})"
    component = source.get("component") or event.get("reportingComponent") or ""
    return [
        last_seen,
        event.get("type", ""),
        event.get("reason", ""),
        f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
        about.get("fieldPath", ""),
        f"{component}, {source['host']}" if source.get("host") else component,
        str(event.get("message", "")).strip(),
        age(first, now),
        str(count),
        _name(event),
    ]


def _lease(lease: Object, now: float) -> list[Any]:
    return [_name(lease), (lease.get("spec") or {}).get("holderIdentity", ""), _age(lease, now)]


def _service(service: Object, now: float) -> list[Any]:
    spec = service.get("spec") or {}
    ports = ",".join(f"{each.get('port')}/{each.get('protocol', 'TCP')}" for each in spec.get("ports") or ())
    kind, address = spec.get("type", "ClusterIP"), spec.get("clusterIP") or _NONE
    return [_name(service), kind, address, _NONE, ports or _NONE, _age(service, now), _joined(spec.get("selector"))]


def _volume(volume: Object, now: float) -> list[Any]:
    spec, status = volume.get("spec") or {}, volume.get("status") or {}
    claim = spec.get("claimRef") or {}
    return [
        _name(volume),
        (spec.get("capacity") or {}).get("storage", ""),
        ",".join(spec.get("accessModes") or ()),
        spec.get("persistentVolumeReclaimPolicy", "Retain"),
        status.get("phase", "Pending"),
        f"{claim.get('namespace')}/{claim.get('name')}" if claim else "",
        spec.get("storageClassName", ""),
        "<unset>",
        status.get("reason", ""),
        _age(volume, now),
        spec.get("volumeMode", "Filesystem"),
    ]


def _claim(claim: Object, now: float) -> list[Any]:
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    return [
        _name(claim),
        status.get("phase", "Pending"),
        spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", ""),
        ",".join(status.get("accessModes") or ()),
        spec.get("storageClassName", ""),
        "<unset>",
        _age(claim, now),
        spec.get("volumeMode", "Filesystem"),
    ]


def _quota(quota: Object, now: float) -> list[Any]:
    hard, used = (quota.get("spec") or {}).get("hard") or {}, (quota.get("status") or {}).get("used") or {}
    shown = {name: f"{name}: {used.get(name, '0')}/{most}" for name, most in sorted(hard.items())}
    limits = ", ".join(text for name, text in shown.items() if name.startswith("limits."))
    requests = ", ".join(text for name, text in shown.items() if not name.startswith("limits."))
    return [_name(quota), requests, limits, _age(quota, now)]


def _budget(budget: Object, now: float) -> list[Any]:
    spec, status = budget.get("spec") or {}, budget.get("status") or {}
    fewest, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    return [
        _name(budget),
        "N/A" if fewest is None else str(fewest),
        "N/A" if most is None else str(most),
        status.get("disruptionsAllowed", 0),
        _age(budget, now),
    ]


def _job(job: Object, now: float) -> list[Any]:
    spec, status = job.get("spec") or {}, job.get("status") or {}
    wanted = spec.get("completions")
    done = status.get("succeeded", 0)
    completions = f"{done}/{wanted}" if wanted is not None else f"{done}/1 of {spec.get('parallelism', 1)}"
    started, ended = parse_time(status.get("startTime")), parse_time(status.get("completionTime"))
    lasted = "" if started is None else duration((ended or now) - started)
    conditions = {each.get("type") for each in status.get("conditions") or () if each.get("status") == "True"}
    order = {"Complete": "Complete", "Failed": "Failed", "Suspended": "Suspended", "FailureTarget": "FailureTarget"}
    word = next((word for name, word in order.items() if name in conditions), "Running")
    return [_name(job), word, completions, lasted, _age(job, now), *_template(job), _selector(job)]


def _deployment(deployment: Object, now: float) -> list[Any]:
    spec, status = deployment.get("spec") or {}, deployment.get("status") or {}
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 1)}"
    updated, available = str(status.get("updatedReplicas", 0)), str(status.get("availableReplicas", 0))
    shown = [_name(deployment), ready, updated, available, _age(deployment, now)]
    return [*shown, *_template(deployment), _selector(deployment)]


def _replicas(replicas: Object, now: float) -> list[Any]:
    spec, status = replicas.get("spec") or {}, replicas.get("status") or {}
    counts = [spec.get("replicas", 1), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [_name(replicas), *counts, _age(replicas, now), *_template(replicas), _selector(replicas)]


def _stateful(stateful: Object, now: float) -> list[Any]:
    spec, status = stateful.get("spec") or {}, stateful.get("status") or {}
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 1)}"
    return [_name(stateful), ready, _age(stateful, now), *_template(stateful)]


def _template(owner: Object) -> list[str]:
    spec = ((owner.get("spec") or {}).get("template") or {}).get("spec") or {}
    containers = spec.get("containers") or []
    return [",".join(str(each.get(field, "")) for each in containers) for field in ("name", "image")]


def _selector(owner: Object) -> str:
    return _joined(((owner.get("spec") or {}).get("selector") or {}).get("matchLabels"))


def _priority_class(each: Object, now: float) -> list[Any]:
    policy = each.get("preemptionPolicy", "PreemptLowerPriority")
    return [_name(each), each.get("value", 0), bool(each.get("globalDefault")), _age(each, now), policy]


def _pod_group(each: Object, now: float) -> list[Any]:
    spec, conditions = each.get("spec") or {}, (each.get("status") or {}).get("conditions") or ()
    policy = next(iter(spec.get("schedulingPolicy") or {}), "").capitalize()
    workload = (spec.get("workloadRef") or (spec.get("podGroupTemplateRef") or {}).get("workload") or {}).get(
        "workloadName"
    )
    scheduled = [one for one in conditions if str(one.get("type")).endswith("Scheduled")]
    word = scheduled[0].get("reason", "") if scheduled else "Pending"
    return [_name(each), policy, workload or _NONE, word, _age(each, now)]


def _storage_class(each: Object, now: float) -> list[Any]:
    default = (each["metadata"].get("annotations") or {}).get("storageclass.kubernetes.io/is-default-class") == "true"
    name = f"{_name(each)} (default)" if default else _name(each)
    expands = bool(each.get("allowVolumeExpansion"))
    return [
        name,
        each.get("provisioner"),
        each.get("reclaimPolicy"),
        each.get("volumeBindingMode"),
        expands,
        _age(each, now),
    ]


def _kept(field: str) -> Cells:
    return lambda obj, now: [_name(obj), str(len(obj.get(field) or ())), _age(obj, now)]


_OWNED: Final = "+Containers, +Images, +Selector"

TABLES: Final[Mapping[str, TableForm]] = {
    "namespaces": _form(
        "Name, Status, Age", lambda obj, now: [_name(obj), (obj.get("status") or {}).get("phase", ""), _age(obj, now)]
    ),
    "nodes": _form(
        "Name, Status, Roles, Age, Version, +Internal-IP, +External-IP, +OS-Image, +Kernel-Version, +Container-Runtime",
        _node,
    ),
    "events": _form(
        "Last Seen, Type, Reason, Object, +Subobject, +Source, Message, +First Seen, +Count, +Name", _event
    ),
    "configmaps": _form("Name, Data, Age", _kept("data")),
    "secrets": _form(
        "Name, Type, Data, Age",
        lambda obj, now: [_name(obj), obj.get("type", "Opaque"), str(len(obj.get("data") or ())), _age(obj, now)],
    ),
    "services": _form("Name, Type, Cluster-IP, External-IP, Port(s), Age, +Selector", _service),
    "persistentvolumes": _form(
        "Name, Capacity, Access Modes, Reclaim Policy, Status, Claim, StorageClass, VolumeAttributesClass, Reason, "
        "Age, +VolumeMode",
        _volume,
    ),
    "persistentvolumeclaims": _form(
        "Name, Status, Volume, Capacity, Access Modes, StorageClass, VolumeAttributesClass, Age, +VolumeMode", _claim
    ),
    "resourcequotas": _form("Name, Request, Limit, Age", _quota),
    "priorityclasses.scheduling.k8s.io": _form(
        "Name, Value:i, Global-Default:b, Age, PreemptionPolicy", _priority_class
    ),
    "podgroups.scheduling.k8s.io": _form("Name, Policy, Workload, Status, Age", _pod_group),
    "storageclasses.storage.k8s.io": _form(
        "Name, Provisioner, ReclaimPolicy, VolumeBindingMode, AllowVolumeExpansion:b, Age", _storage_class
    ),
    "leases.coordination.k8s.io": _form("Name, Holder, Age", _lease),
    "customresourcedefinitions.apiextensions.k8s.io": _form(
        "Name, Created At", lambda obj, _: [_name(obj), obj["metadata"].get("creationTimestamp")]
    ),
    "poddisruptionbudgets.policy": _form("Name, Min Available, Max Unavailable, Allowed Disruptions:i, Age", _budget),
    "jobs.batch": _form(f"Name, Status, Completions, Duration, Age, {_OWNED}", _job),
    "deployments.apps": _form(f"Name, Ready, Up-to-date, Available, Age, {_OWNED}", _deployment),
    "replicasets.apps": _form(f"Name, Desired:i, Current:i, Ready:i, Age, {_OWNED}", _replicas),
    "statefulsets.apps": _form("Name, Ready, Age, +Containers, +Images", _stateful),
}
"""Collection -> table. Other kinds have a name and an age."""
