"""Declarations of gangs as values: pods with marks, and PodGroups."""

from collections.abc import Mapping
from typing import Any

from builders.gangs.gang import KOORDINATOR
from muster.dialects import coscheduling, koordinator
from muster.dialects.definitions import Definition, DefinitionKind
from muster.dialects.marks import MarkSet, PodAge
from muster.dialects.registry import gang_marks, read_gang
from muster.gangs.facts import GangFacts, Severity


def marked(
    name: str = "w-0",
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    namespace: str = "a",
    created_seconds: int = 100,
) -> MarkSet:
    """Returns a mark set of one pod."""
    return MarkSet(gang_marks(namespace, labels, annotations), PodAge(created_seconds, name, f"uid-of-{name}"))


def koordinator_pod(name: str = "w-0", created_seconds: int = 100, /, **marks: str) -> MarkSet:
    """Returns a pod of Koordinator's gang a/A: min_available="3" is the annotation .../min-available."""
    annotations = {KOORDINATOR + key.replace("_", "-"): value for key, value in {"name": "A", **marks}.items()}
    return marked(name, annotations=annotations, created_seconds=created_seconds)


def pod_group(
    kind: DefinitionKind, spec: Mapping[str, Any], annotations: Mapping[str, str] | None = None, name: str = "A"
) -> Definition:
    """Returns the PodGroup of a kind in namespace a."""
    return Definition(kind.api_version, kind.kind, "a", name, f"uid-of-{name}", 50, annotations or {}, {}, spec)


def koordinator_group(spec: Mapping[str, Any], **annotations: str) -> Definition:
    """Returns Koordinator's PodGroup a/A; annotations as in koordinator_pod."""
    keyed = {KOORDINATOR + key.replace("_", "-"): value for key, value in annotations.items()}
    return pod_group(koordinator.DEFINITION, spec, keyed)


def coscheduling_group(spec: Mapping[str, Any]) -> Definition:
    """Returns the coscheduling PodGroup a/A."""
    return pod_group(coscheduling.DEFINITION, spec)


def koordinator_gang(*pods: MarkSet, definition: Definition | None = None) -> GangFacts:
    """Reads Koordinator's gang a/A."""
    return read_gang("koordinator/a/A", definition, pods)


def problems_of(gang: GangFacts) -> list[tuple[Severity, str]]:
    """Returns the gang's problems as pairs."""
    return [(problem.severity, problem.message) for problem in gang.problems]
