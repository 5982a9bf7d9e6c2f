"""Sakkara's groups: declarations and progress as values."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Raw

from builders.gangs.declarations import marked
from muster.dialects import sakkara
from muster.dialects.definitions import Definition
from muster.dialects.marks import MarkSet
from muster.dialects.progress import MemberProgress, Progress, Stage
from muster.dialects.registry import read_gang
from muster.gangs.facts import GangFacts
from muster.kube.gang_marks import definition
from muster.kube.objects import ObjectMeta, PodGroup

LABEL = "sakkara.group."


def config_map(data: Mapping[str, Any], name: str = "A", *, created_seconds: int = 50) -> Definition:
    """Returns the ConfigMap a/A with these data, encoded as JSON unless they are strings."""
    written = {key: value if isinstance(value, str) else json.dumps(value) for key, value in data.items()}
    metadata = ObjectMeta(
        namespace="a",
        name=name,
        uid=f"uid-of-{name}",
        labels={"sakkara.group": ""},
        creation_timestamp=datetime.fromtimestamp(created_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
    stored = PodGroup(api_version="v1", kind="ConfigMap", metadata=metadata, data=Raw(json.dumps(written).encode()))
    return definition(stored, sakkara.DEFINITION)


def member(name: str = "w-0", created_seconds: int = 100, /, **labels: str) -> MarkSet:
    """Returns a pod of group a/A: size="3" is the label sakkara.group.size; __ stands for a dot."""
    keyed = {LABEL + key.replace("__", "."): value for key, value in {"name": "A", **labels}.items()}
    return marked(name, labels=keyed, created_seconds=created_seconds)


def group(*pods: MarkSet, **data: Any) -> GangFacts:
    """Reads group a/A, with a ConfigMap if data are given."""
    return read_gang("sakkara/a/A", config_map(data) if data else None, pods)


def progress(stage: Stage, *members: MemberProgress, **fields: Any) -> Progress:
    """Returns progress of group a/A with its ConfigMap."""
    return Progress(group(size="2"), stage, members, **fields)
