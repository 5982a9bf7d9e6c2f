"""kube-batch's coscheduling: PodGroup scheduling.incubator.k8s.io/v1alpha1, which pods name by an annotation.

The annotation together with the number of pods is another dialect (batch), which needs no PodGroup.

`queue` names a queue of kube-batch; Muster has none, and only quotes it. `totalResources` is what quota is reserved
for, and no condition for starting. `policy` says when the whole group is restarted, which is lifecycle's to do.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from muster.dialects.declared import (
    Source,
    blocking,
    chosen,
    class_priority,
    definition_terms,
    facts,
    member_of,
    oldest_first,
    quota_problems,
    warning,
)
from muster.dialects.marks import NO_PRIORITIES, Definition, DefinitionKind, GangMarks, MarkSet, Membership
from muster.dialects.resources import amounts
from muster.dialects.values import BadValue, count, duration_or_seconds, shown
from muster.gangs.facts import Amounts, GangFacts, MatchPolicy, Problem
from muster.gangs.quoting import quoted

NAME: Final = "kube-batch"
DEFINITION: Final = DefinitionKind(
    "scheduling.incubator.k8s.io", "v1alpha1", "PodGroup", "podgroups", status=("conditions",)
)

GROUP_NAME: Final = "scheduling.k8s.io/group-name"
GROUP_POD_NUM: Final = "scheduling.k8s.io/group-pod-num"

LABELS: Final[frozenset[str]] = frozenset()
ANNOTATIONS: Final = frozenset({GROUP_NAME})

EVENT_REASON: Final = "Unschedulable"
"""Reason of the events that say why a gang does not start, as in the proposal."""

MOST_POLICIES: Final = 20
"""Entries of spec.policy that are read."""

_TERMS: Final = ("minMember", "minMembers", "minResources", "totalResources", "queue", "priorityClassName", "policy")
_NO_AMOUNTS: Final[Amounts] = ()
_BELOW_MINIMUM: Final = "unschedulable"
_RESTART, _NONE = "restart", "none"


def membership(marks: GangMarks) -> Membership | None:
    """The gang that a pod's annotation names; None if it has none, or is of the dialect batch."""
    name = marks.annotation(GROUP_NAME)
    if name is None or marks.annotation(GROUP_POD_NUM) is not None:
        return None
    return member_of(NAME, marks.namespace, name, f"annotation {GROUP_NAME}")


def read(
    namespace: str,
    name: str,
    definition: Definition | None,
    mark_sets: Iterable[MarkSet],
    priorities: Mapping[str, int] = NO_PRIORITIES,
) -> GangFacts:
    """What the PodGroup declares; pods only name it. Its minimum holds again and again, as in kube-batch's every cycle:
    pods that are made anew wait until they and those that run or succeeded reach it.
    """
    declared = facts(NAME, namespace, name, definition, oldest_first(mark_sets))
    declared = replace(declared, match_policy=MatchPolicy.WAITING_AND_RUNNING, counts_succeeded=True, starts_anew=True)
    if definition is None:
        missing = blocking(
            f"PodGroup {quoted(f'{namespace}/{name}')} ({DEFINITION.api_version}) does not exist yet: create it, "
            f"or correct the pods' annotation {GROUP_NAME}, or add {GROUP_POD_NUM} to have the pods do without one"
        )
        return replace(declared, problems=(missing,))
    problems: list[Problem] = []
    minimum = _minimum(definition, problems)
    least = definition.spec.get("minResources")
    resources = chosen(
        [Source(least, f"spec.minResources of {_words(definition)}")] if least else [],
        amounts,
        _NO_AMOUNTS,
        problems,
        warning,
        "only what the pods ask for counts",
    )
    priority_class = f"spec.priorityClassName of {_words(definition)}"
    priority = class_priority(definition.spec.get("priorityClassName"), priorities, priority_class, problems)
    try:
        restart_after_seconds(definition.spec.get("policy"))
    except BadValue as error:
        problems.append(warning(f"spec.policy of {_words(definition)} is {error}: the group is never restarted"))
    return replace(
        declared,
        minimum=minimum,
        total=minimum,
        priority=priority,
        resources=resources,
        terms=tuple(definition_terms(definition, _TERMS)),
        problems=(*problems, *quota_problems(definition)),
    )


def restart_after_seconds(policy: object) -> float | None:
    """How long the group may run with fewer than its minimum before all of it is restarted; None: for ever.

    That is the entry of spec.policy with the event Unschedulable and the action Restart. Raises BadValue.
    """
    if policy is None:
        return None
    if not isinstance(policy, list) or not all(isinstance(entry, dict) for entry in policy):
        raise BadValue(f"{shown(policy)}, which is not a list such as [{{event: Unschedulable, action: Restart}}]")
    if len(policy) > MOST_POLICIES:
        raise BadValue(f"a list of {len(policy)} entries, but it must have at most {MOST_POLICIES}")
    found = [each for each in map(_restart, policy) if each is not None]
    return min(found, default=None)


def _restart(entry: dict[str, Any]) -> float | None:
    event, action, timeout = entry.get("event"), entry.get("action", "None"), entry.get("timeout")
    if not isinstance(event, str) or event.lower() != _BELOW_MINIMUM:
        raise BadValue(f"a list with the event {shown(event)} in it, but the only one there is is Unschedulable")
    if not isinstance(action, str) or action.lower() not in (_RESTART, _NONE):
        raise BadValue(f"a list with the action {shown(action)} in it, which is neither Restart nor None")
    if action.lower() == _NONE:
        return None
    if timeout is None or timeout in ("0", "0s"):
        return 0.0
    if not isinstance(timeout, str):
        raise BadValue(f"a list with the timeout {shown(timeout)} in it, which is not a duration such as 90s or 10m")
    try:
        return duration_or_seconds(timeout)
    except BadValue as error:
        raise BadValue(f"a list with a timeout in it that is {error}") from None


def _minimum(definition: Definition, problems: list[Problem]) -> int:
    """minMember, or minMembers as the proposal has it."""
    given = [
        Source(definition.spec[key], f"spec.{key} of {_words(definition)}")
        for key in ("minMember", "minMembers")
        if definition.spec.get(key) is not None
    ]
    sources = given or [Source(None, f"spec.minMember of {_words(definition)}")]
    return chosen(sources, count, 0, problems, blocking, "set it to the number of pods that must start together")


def _words(definition: Definition) -> str:
    return f"PodGroup {quoted(f'{definition.namespace}/{definition.name}')}"
