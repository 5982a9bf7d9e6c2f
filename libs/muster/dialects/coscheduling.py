"""Coscheduling of the scheduler-plugins: PodGroup scheduling.x-k8s.io/v1alpha1, which pods name by a label."""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from muster.dialects.declared import (
    Source,
    blocking,
    chosen,
    definition_terms,
    facts,
    member_of,
    oldest_first,
    quota_problems,
    warning,
)
from muster.dialects.marks import NO_PRIORITIES, Definition, DefinitionKind, GangMarks, MarkSet, Membership
from muster.dialects.resources import amounts
from muster.dialects.values import count, seconds
from muster.gangs.facts import Amounts, GangFacts, Problem
from muster.gangs.quoting import quoted

NAME: Final = "coscheduling"
DEFINITION: Final = DefinitionKind("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups", status=("conditions",))

POD_GROUP_LABEL: Final = "scheduling.x-k8s.io/pod-group"

LABELS: Final = frozenset({POD_GROUP_LABEL})
ANNOTATIONS: Final[frozenset[str]] = frozenset()

_FIELDS: Final = ("minMember", "minResources", "scheduleTimeoutSeconds")

DEFAULT_WAITING_SECONDS: Final = 60.0
"""The coscheduling plugin's default."""


def membership(marks: GangMarks) -> Membership | None:
    """The gang that a pod's label names; None if it has no such label."""
    name = marks.label(POD_GROUP_LABEL)
    if name is None:
        return None
    return member_of(NAME, marks.namespace, name, f"label {POD_GROUP_LABEL}")


def read(
    namespace: str,
    name: str,
    definition: Definition | None,
    mark_sets: Iterable[MarkSet],
    priorities: Mapping[str, int] = NO_PRIORITIES,
) -> GangFacts:
    """What the PodGroup declares; pods only name it. A timeout of 0 means the default."""
    problems: list[Problem] = []
    pod_group = f"PodGroup {quoted(f'{namespace}/{name}')}"
    minimum, waiting_seconds = 0, DEFAULT_WAITING_SECONDS
    resources: Amounts = ()
    if definition is None:
        problems.append(
            blocking(
                f"{pod_group} ({DEFINITION.api_version}) does not exist yet: create it, or correct the pods' label"
            )
        )
    else:
        minimum = chosen(
            [Source(definition.spec.get("minMember"), f"spec.minMember of {pod_group}")],
            count,
            0,
            problems,
            blocking,
            "set it to the number of pods that must start together",
        )
        timeout = definition.spec.get("scheduleTimeoutSeconds")
        waiting_seconds = chosen(
            [Source(timeout, f"spec.scheduleTimeoutSeconds of {pod_group}")] if timeout else [],
            seconds,
            DEFAULT_WAITING_SECONDS,
            problems,
            warning,
            f"{DEFAULT_WAITING_SECONDS:g}s counts instead",
        )
        least = definition.spec.get("minResources")
        resources = chosen(
            [Source(least, f"spec.minResources of {pod_group}")] if least else [],
            amounts,
            resources,
            problems,
            warning,
            "only what the pods ask for counts",
        )
        problems += quota_problems(definition)
    return replace(
        facts(NAME, namespace, name, definition, oldest_first(mark_sets)),
        minimum=minimum,
        total=minimum,
        waiting_time_seconds=waiting_seconds,
        problems=tuple(problems),
        resources=resources,
        starts_anew=True,
        terms=tuple(definition_terms(definition, _FIELDS)),
    )
