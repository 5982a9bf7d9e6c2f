"""kube-batch's coscheduling: PodGroup scheduling.incubator.k8s.io/v1alpha1, which pods name by an annotation.

Pods that also have the annotation with the number of pods belong to the dialect batch, which needs no PodGroup. The
annotation also names PodGroups of Volcano, which share the gang ids of this dialect: pods without a PodGroup wait for
either. Names that Volcano's controller generated belong to the dialect volcano.

`queue` names a queue of kube-batch. Muster has no queues by name and only quotes it. `totalResources` is the quota to
reserve, not a condition for starting. `policy` says when lifecycle restarts the whole group.
"""

import re
from typing import Any, Final

from msgspec.structs import replace

from muster.dialects.definitions import Definition, DefinitionKind
from muster.dialects.dialect import Declaration, Dialect, PodMarks
from muster.dialects.marks import GangMarks, Membership
from muster.dialects.quota import quota_problems
from muster.dialects.sources import (
    Source,
    blocking,
    choose,
    choose_class_priority,
    definition_terms,
    gang_facts,
    member_of,
    min_resources,
    undeclared,
    unknown_fields,
    warning,
)
from muster.dialects.values import BadValue, parse_count, parse_duration_or_seconds, quoted_value
from muster.gangs.facts import GangFacts, MatchPolicy, Problem
from muster.gangs.quoting import quoted

NAME: Final = "kube-batch"
DEFINITION: Final = DefinitionKind(
    "scheduling.incubator.k8s.io", "v1alpha1", "PodGroup", "podgroups", status=("conditions",)
)

GROUP_NAME: Final = "scheduling.k8s.io/group-name"
GROUP_POD_NUM: Final = "scheduling.k8s.io/group-pod-num"

VOLCANO_API_VERSION: Final = "scheduling.volcano.sh/v1beta1"
"""PodGroups that the same annotation may name, read by the dialect volcano."""

_GENERATED: Final = re.compile(r"podgroup-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Names of the PodGroups that Volcano's controller makes: with the uid of a pod or of its owner."""

EVENT_REASON: Final = "Unschedulable"
"""Reason of events that report why a gang does not start, as in kube-batch's proposal."""

MAX_POLICIES: Final = 20
"""Entries of spec.policy that are read."""

_TERMS: Final = ("minMember", "minMembers", "minResources", "totalResources", "queue", "priorityClassName", "policy")
_BELOW_MINIMUM: Final = "unschedulable"
_RESTART, _NONE = "restart", "none"


def membership(marks: GangMarks) -> Membership | None:
    """Returns the gang that a pod's annotation names; None without it, or if the pod belongs to another dialect."""
    if marks.annotation(GROUP_POD_NUM) is not None or generated(marks):
        return None
    return named_gang(marks)


def named_gang(marks: GangMarks) -> Membership | None:
    """Returns the gang that a pod's annotation names; None without it."""
    name = marks.annotation(GROUP_NAME)
    return None if name is None else member_of(NAME, marks.namespace, name, f"annotation {GROUP_NAME}")


def generated(marks: GangMarks, key: str = GROUP_NAME) -> bool:
    """Returns whether the annotation has a name that Volcano's controller generated, for pods that had none."""
    return key == GROUP_NAME and is_generated(marks.annotation(GROUP_NAME) or "")


def is_generated(name: str) -> bool:
    """Returns whether Volcano's controller generated the name of a PodGroup."""
    return _GENERATED.fullmatch(name) is not None


def read(declaration: Declaration) -> GangFacts:
    """Reads the PodGroup; pods only name it.

    As in every cycle of kube-batch, the minimum applies after the first start too: replaced pods wait until they and
    those that run or succeeded reach it.
    """
    definition = declaration.definition
    facts = replace(
        gang_facts(NAME, declaration),
        match_policy=MatchPolicy.WAITING_AND_RUNNING,
        counts_succeeded=True,
    )
    if definition is None:
        missing = undeclared(
            f"PodGroup {quoted(f'{declaration.namespace}/{declaration.name}')} ({DEFINITION.api_version} or "
            f"{VOLCANO_API_VERSION}) does not exist yet: create it, or correct the pods' annotation {GROUP_NAME}, or "
            f"add {GROUP_POD_NUM} to the pods to need no PodGroup"
        )
        return replace(facts, problems=(missing,))
    problems: list[Problem] = []
    minimum = _minimum(definition, problems)
    resources = min_resources(definition, problems)
    priority_class = f"spec.priorityClassName of {_title(definition)}"
    priority = choose_class_priority(
        definition.spec.get("priorityClassName"), declaration.priorities, priority_class, problems
    )
    try:
        restart_after_seconds(definition.spec.get("policy"))
    except BadValue as error:
        problems.append(warning(f"spec.policy of {_title(definition)} is {error}: the group is never restarted"))
    return replace(
        facts,
        minimum=minimum,
        total=minimum,
        priority=priority,
        resources=resources,
        terms=tuple(definition_terms(definition, _TERMS)),
        problems=(
            *problems,
            *unknown_fields(definition.spec, _TERMS, f"spec of {_title(definition)}"),
            *quota_problems(definition),
        ),
    )


def restart_after_seconds(policy: object) -> float | None:
    """Returns how long the group may run with fewer pods than its minimum before it is restarted; None: forever.

    Reads the entry of spec.policy with the event Unschedulable and the action Restart. Raises BadValue.
    """
    if policy is None:
        return None
    if not isinstance(policy, list) or not all(isinstance(entry, dict) for entry in policy):
        raise BadValue(
            f"{quoted_value(policy)}, which is not a list such as [{{event: Unschedulable, action: Restart}}]"
        )
    if len(policy) > MAX_POLICIES:
        raise BadValue(f"a list of {len(policy)} entries, but it must have at most {MAX_POLICIES}")
    found = [each for each in map(_restart, policy) if each is not None]
    return min(found, default=None)


def _restart(entry: dict[str, Any]) -> float | None:
    event, action, timeout = entry.get("event"), entry.get("action", "None"), entry.get("timeout")
    if not isinstance(event, str) or event.lower() != _BELOW_MINIMUM:
        raise BadValue(f"a list with the event {quoted_value(event)} in it, but the only known event is Unschedulable")
    if not isinstance(action, str) or action.lower() not in (_RESTART, _NONE):
        raise BadValue(f"a list with the action {quoted_value(action)} in it, which is neither Restart nor None")
    if action.lower() == _NONE:
        return None
    if timeout is None or timeout in ("0", "0s"):
        return 0.0
    if not isinstance(timeout, str):
        raise BadValue(
            f"a list with the timeout {quoted_value(timeout)} in it, which is not a duration such as 90s or 10m"
        )
    try:
        return parse_duration_or_seconds(timeout)
    except BadValue as error:
        raise BadValue(f"a list with a timeout that is {error}") from None


def _minimum(definition: Definition, problems: list[Problem]) -> int:
    """Returns minMember, or minMembers as in kube-batch's proposal."""
    given = [
        Source(definition.spec[key], f"spec.{key} of {_title(definition)}")
        for key in ("minMember", "minMembers")
        if definition.spec.get(key) is not None
    ]
    sources = given or [Source(None, f"spec.minMember of {_title(definition)}")]
    return choose(sources, parse_count, 0, problems, blocking, "set it to the number of pods that must start together")


def _title(definition: Definition) -> str:
    return f"PodGroup {quoted(f'{definition.namespace}/{definition.name}')}"


DIALECT: Final = Dialect(
    name=NAME,
    marks=PodMarks(annotations=frozenset({GROUP_NAME}), naming=f"annotation {GROUP_NAME}", generated=generated),
    membership=membership,
    read=read,
    definition=DEFINITION,
    event_reason=EVENT_REASON,
)
