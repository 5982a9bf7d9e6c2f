"""Converts pods and PodGroups to the input of the dialects: gang marks and definitions."""

from typing import Any, Final

import msgspec
from msgspec import Raw

from muster.dialects import kueue_slices, registry
from muster.dialects.definitions import Definition, DefinitionKind, Owner
from muster.dialects.marks import GangMarks, PodAge
from muster.gangs.byte_cache import cached_by_bytes
from muster.kube.json_repair import shallow
from muster.kube.objects import NOTHING, UNREADABLE, ObjectMeta, Pod, PodGroup
from muster.kube.timestamps import BadTimestamp, parse_timestamp

_MOST_UNKNOWN: Final = 10
"""Unknown keys of a definition that are kept."""
_MAX_KEY_LENGTH: Final = 253
"""Characters of a key of a ConfigMap."""


def gang_marks(pod: Pod, job: str = "") -> GangMarks:
    """The fields of a pod that dialects read; falsy if there are none. `job` as in GangMarks."""
    metadata, spec = pod.metadata, pod.spec
    marks = registry.gang_marks(metadata.namespace, metadata.labels, metadata.annotations, pod_group_of(pod), job)
    if not kueue_slices.asks(marks.annotations):
        return marks
    gates = [each.name for each in spec.scheduling_gates or ()]
    return kueue_slices.unless_placed(marks, gates, _object(bytes(spec.node_selector)))


def pod_group_of(pod: Pod) -> str:
    """The name of the PodGroup in a pod's spec.schedulingGroup; empty without one."""
    group = pod.spec.scheduling_group
    return "" if group is NOTHING else _name_of_group(bytes(group))


def definition(pod_group: PodGroup, kind: DefinitionKind) -> Definition:
    """The definition of a gang; a spec that is not a JSON object counts as empty."""
    metadata = pod_group.metadata
    content = _object(bytes(pod_group.data if kind.content == "data" else pod_group.spec))
    status = _object(bytes(pod_group.status)) if kind.status else {}
    owner = metadata.controlling
    return Definition(
        api_version=pod_group.api_version or kind.api_version,
        kind=kind.kind,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        created_seconds=_created_seconds(metadata),
        annotations=metadata.annotations or {},
        labels=metadata.labels or {},
        spec={key: value for key, value in content.items() if not kind.keys or key in kind.keys},
        unknown=_unknown(content, kind),
        status={key: value for key, value in status.items() if key in kind.status},
        controller=Owner(owner.api_version, owner.kind, owner.name, owner.uid) if owner is not None else None,
    )


def pod_age(pod: Pod) -> PodAge:
    """The sort key by which the oldest pod of a gang is found."""
    metadata = pod.metadata
    return PodAge(_created_seconds(metadata), metadata.name, metadata.uid)


@cached_by_bytes(1024 * 1024)
def _name_of_group(raw: bytes) -> str:
    name = _object(raw).get("podGroupName")
    return name if isinstance(name, str) else ""


def _created_seconds(metadata: ObjectMeta) -> int:
    try:
        return parse_timestamp(metadata.creation_timestamp) if metadata.creation_timestamp else 0
    except BadTimestamp:
        return 0


def _object(raw: bytes) -> dict[str, Any]:
    try:
        fields = msgspec.json.decode(shallow(raw), type=dict[str, Raw]) if raw else {}
    except UNREADABLE:
        return {}
    return {key: _value(value) for key, value in fields.items()}


def _unknown(content: dict[str, Any], kind: DefinitionKind) -> tuple[str, ...]:
    known = (*kind.keys, *kind.written)
    unknown = [key[:_MAX_KEY_LENGTH] for key in content if key not in known] if kind.written else []
    return tuple(sorted(unknown)[:_MOST_UNKNOWN])


def _value(raw: Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except UNREADABLE:  # e.g. an out-of-range number: the dialect quotes it
        return bytes(raw).decode(errors="replace")
