"""Coscheduling of the scheduler-plugins: PodGroup scheduling.x-k8s.io/v1alpha1, which pods name by a label.

minMember holds for every pod, also after the start: as the plugin counts siblings for each pod, later pods wait until
they and the running ones reach it.
"""

from typing import Final

from msgspec.structs import replace

from muster.dialects.definitions import DefinitionKind
from muster.dialects.dialect import Declaration, Dialect, PodMarks
from muster.dialects.marks import GangMarks, Membership
from muster.dialects.quota import quota_problems
from muster.dialects.sources import (
    Source,
    blocking,
    choose,
    definition_terms,
    gang_facts,
    member_of,
    min_resources,
    undeclared,
    unknown_fields,
    warning,
)
from muster.dialects.values import parse_count, parse_seconds
from muster.gangs.facts import Amounts, GangFacts, MatchPolicy, Problem
from muster.gangs.quoting import quoted

NAME: Final = "coscheduling"
DEFINITION: Final = DefinitionKind("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups", status=("conditions",))

POD_GROUP_LABEL: Final = "scheduling.x-k8s.io/pod-group"

DEFAULT_WAITING_SECONDS: Final = 60.0
"""The coscheduling plugin's default."""

_FIELDS: Final = ("minMember", "minResources", "scheduleTimeoutSeconds")


def membership(marks: GangMarks) -> Membership | None:
    """Returns the gang that a pod's label names; None without that label."""
    name = marks.label(POD_GROUP_LABEL)
    if name is None:
        return None
    return member_of(NAME, marks.namespace, name, f"label {POD_GROUP_LABEL}")


def read(declaration: Declaration) -> GangFacts:
    """Reads the PodGroup; pods only name it. A timeout of 0 means the default."""
    definition = declaration.definition
    problems: list[Problem] = []
    pod_group = f"PodGroup {quoted(f'{declaration.namespace}/{declaration.name}')}"
    minimum, waiting_seconds = 0, DEFAULT_WAITING_SECONDS
    resources: Amounts = ()
    if definition is None:
        problems.append(
            undeclared(
                f"{pod_group} ({DEFINITION.api_version}) does not exist yet: create it, or correct the pods' label"
            )
        )
    else:
        minimum = choose(
            [Source(definition.spec.get("minMember"), f"spec.minMember of {pod_group}")],
            parse_count,
            0,
            problems,
            blocking,
            "set it to the number of pods that must start together",
        )
        timeout = definition.spec.get("scheduleTimeoutSeconds")
        waiting_seconds = choose(
            [Source(timeout, f"spec.scheduleTimeoutSeconds of {pod_group}")] if timeout else [],
            parse_seconds,
            DEFAULT_WAITING_SECONDS,
            problems,
            warning,
            f"{DEFAULT_WAITING_SECONDS:g}s is used instead",
        )
        resources = min_resources(definition, problems)
        problems += (*unknown_fields(definition.spec, _FIELDS, f"spec of {pod_group}"), *quota_problems(definition))
    return replace(
        gang_facts(NAME, declaration),
        minimum=minimum,
        total=minimum,
        waiting_time_seconds=waiting_seconds,
        problems=tuple(problems),
        match_policy=MatchPolicy.WAITING_AND_RUNNING,
        resources=resources,
        terms=tuple(definition_terms(definition, _FIELDS)),
    )


DIALECT: Final = Dialect(
    name=NAME,
    marks=PodMarks(labels=frozenset({POD_GROUP_LABEL}), naming=f"label {POD_GROUP_LABEL}"),
    membership=membership,
    read=read,
    definition=DEFINITION,
)
