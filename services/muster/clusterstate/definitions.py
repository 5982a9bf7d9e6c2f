"""Objects that define gangs, as dialects want them."""

from typing import Any

import msgspec
import structlog

from muster.dialects.marks import Definition
from muster.kube.objects import PodGroup
from muster.kube.timestamps import BadTimestamp, parse_timestamp

_log = structlog.get_logger(__name__)


def definition_of(group: PodGroup) -> Definition:
    """The definition that an object holds. A spec that is none counts as empty: the dialect says what it lacks."""
    metadata = group.metadata
    created_seconds = 0
    if metadata.creation_timestamp:
        try:
            created_seconds = parse_timestamp(metadata.creation_timestamp)
        except BadTimestamp as error:
            _log.warning(
                "a definition's age is unknown", name=f"{metadata.namespace}/{metadata.name}", error=str(error)
            )
    return Definition(
        api_version=group.api_version,
        kind=group.kind,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        created_seconds=created_seconds,
        annotations=metadata.annotations or {},
        labels=metadata.labels or {},
        spec=_spec(bytes(group.spec)),
    )


def _spec(raw: bytes) -> dict[str, Any]:
    if not raw:
        return {}
    spec: Any = msgspec.json.decode(raw)
    return spec if isinstance(spec, dict) else {}
