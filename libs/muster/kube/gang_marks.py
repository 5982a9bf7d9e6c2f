"""Pods and PodGroups off the wire as the dialects want them: reduced to their gang marks, and to definitions."""

from typing import Any

import msgspec
from msgspec import Raw

from muster.dialects import registry
from muster.dialects.marks import Definition, DefinitionKind, GangMarks, PodAge
from muster.kube.objects import UNREADABLE, ObjectMeta, Pod, PodGroup
from muster.kube.timestamps import BadTimestamp, parse_timestamp


def gang_marks(pod: Pod) -> GangMarks:
    """The marks of a pod that any dialect reads; false if it has none."""
    metadata = pod.metadata
    return registry.gang_marks(metadata.namespace, metadata.labels, metadata.annotations)


def definition(pod_group: PodGroup, kind: DefinitionKind) -> Definition:
    """The definition of a gang; a spec that is no JSON object counts as empty."""
    metadata = pod_group.metadata
    return Definition(
        api_version=kind.api_version,
        kind=kind.kind,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        created_seconds=_created_seconds(metadata),
        annotations=metadata.annotations or {},
        labels=metadata.labels or {},
        spec=_object(bytes(pod_group.spec)),
    )


def pod_age(pod: Pod) -> PodAge:
    """What tells which pod of a gang is the oldest."""
    metadata = pod.metadata
    return PodAge(_created_seconds(metadata), metadata.name, metadata.uid)


def _created_seconds(metadata: ObjectMeta) -> int:
    try:
        return parse_timestamp(metadata.creation_timestamp) if metadata.creation_timestamp else 0
    except BadTimestamp:
        return 0


def _object(raw: bytes) -> dict[str, Any]:
    try:
        fields = msgspec.json.decode(raw, type=dict[str, Raw]) if raw else {}
    except UNREADABLE:
        return {}
    return {key: _value(value) for key, value in fields.items()}


def _value(raw: Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except UNREADABLE:  # a number beyond all bounds, say: the dialect quotes it
        return bytes(raw).decode(errors="replace")
