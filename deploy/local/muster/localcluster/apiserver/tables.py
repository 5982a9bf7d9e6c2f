"""Tables of built-in kinds other than pods, in kubectl's format."""

from collections.abc import Mapping
from typing import Any, Final

from muster.localcluster.apiserver.clock import age
from muster.localcluster.apiserver.kinds import AGE_COLUMN, NAME_COLUMN, Cells, Column, TableForm
from muster.localcluster.apiserver.store import Object

_NONE: Final = "<none>"
_UNKNOWN: Final = "<unknown>"
_ROLE: Final = "node-role.kubernetes.io/"


def _form(columns: str, cells: Cells) -> TableForm:
    """Columns by name; "+": only with -o wide."""
    known = {"Name": NAME_COLUMN, "Age": AGE_COLUMN}
    names = [text.strip() for text in columns.split(",")]
    listed = [known.get(name) or Column(name.removeprefix("+"), priority=int(name[0] == "+")) for name in names]
    return TableForm(tuple(listed), cells)


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _age(obj: Object, now: float) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _node(node: Object, now: float) -> list[Any]:
    spec, status = node.get("spec") or {}, node.get("status") or {}
    ready = [each for each in status.get("conditions") or () if each.get("type") == "Ready"]
    state = ("Ready" if ready[0].get("status") == "True" else "NotReady") if ready else "Unknown"
    labels = node["metadata"].get("labels") or {}
    roles = sorted(key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE))
    addresses = {each.get("type"): each.get("address") for each in status.get("addresses") or ()}
    involved = status.get("nodeInfo") or {}
    return [
        _name(node),
        f"{state},SchedulingDisabled" if spec.get("unschedulable") else state,
        ",".join(roles) or _NONE,
        _age(node, now),
        involved.get("kubeletVersion", ""),
        addresses.get("InternalIP") or _NONE,
        addresses.get("ExternalIP") or _NONE,
        involved.get("osImage") or _UNKNOWN,
        involved.get("kernelVersion") or _UNKNOWN,
        involved.get("containerRuntimeVersion") or _UNKNOWN,
    ]


def _event(event: Object, now: float) -> list[Any]:
    involved, source, series = event.get("involvedObject") or {}, event.get("source") or {}, event.get("series") or {}
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
        f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}",
        involved.get("fieldPath", ""),
        f"{component}, {source['host']}" if source.get("host") else component,
        str(event.get("message", "")).strip(),
        age(first, now),
        str(count),
        _name(event),
    ]


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


def _pod_group(each: Object, now: float) -> list[Any]:
    spec, conditions = each.get("spec") or {}, (each.get("status") or {}).get("conditions") or ()
    policy = next(iter(spec.get("schedulingPolicy") or {}), "").capitalize()
    workload = (spec.get("workloadRef") or (spec.get("podGroupTemplateRef") or {}).get("workload") or {}).get(
        "workloadName"
    )
    scheduled = [one for one in conditions if str(one.get("type")).endswith("Scheduled")]
    word = scheduled[0].get("reason", "") if scheduled else "Pending"
    return [_name(each), policy, workload or _NONE, word, _age(each, now)]


def _resource_claim(claim: Object, now: float) -> list[Any]:
    status, is_deleted = claim.get("status") or {}, "deletionTimestamp" in claim["metadata"]
    states = ["deleted"] if is_deleted else []
    if status.get("allocation"):
        states += ["allocated", "reserved"] if status.get("reservedFor") else ["allocated"]
    elif not is_deleted:
        states.append("pending")
    return [_name(claim), ",".join(states), _age(claim, now)]


def _resource_slice(slice_: Object, now: float) -> list[Any]:
    spec = slice_["spec"]
    return [_name(slice_), spec.get("nodeName") or "", spec["driver"], spec["pool"]["name"], _age(slice_, now)]


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
    "persistentvolumes": _form(
        "Name, Capacity, Access Modes, Reclaim Policy, Status, Claim, StorageClass, VolumeAttributesClass, Reason, "
        "Age, +VolumeMode",
        _volume,
    ),
    "persistentvolumeclaims": _form(
        "Name, Status, Volume, Capacity, Access Modes, StorageClass, VolumeAttributesClass, Age, +VolumeMode", _claim
    ),
    "resourceclaims.resource.k8s.io": _form("Name, State, Age", _resource_claim),
    "resourceslices.resource.k8s.io": _form("Name, Node, Driver, Pool, Age", _resource_slice),
    "podgroups.scheduling.k8s.io": _form("Name, Policy, Workload, Status, Age", _pod_group),
}
"""Collection -> table. Other kinds have a name and an age."""
