"""Kubernetes' own gangs: PodGroup scheduling.k8s.io, which pods name by spec.schedulingGroup.podGroupName.

The versions of the API differ little in what is read here:

    v1alpha2 (1.36)    disruptionMode: "Pod" | "PodGroup"          condition PodGroupScheduled
    v1alpha3 (1.37)    disruptionMode: {single: {}} | {all: {}}    condition PodGroupInitiallyScheduled
    v1beta1  (1.37)    the same                                    the same

The priority is spec.priority, which the API server fills in from the priority class where it can, else that of the
class, else that of the pods. Without a class the API server may fill in 0; that value is ignored. A topology key
defines a tree of its own, whose domains are the values of that label.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from muster.dialects.definitions import DefinitionKind
from muster.dialects.dialect import Declaration, Dialect, PodMarks
from muster.dialects.marks import GangMarks, Membership
from muster.dialects.progress import ObjectCondition, ObjectWrite, Progress, Stage, WriteRule, Writes
from muster.dialects.sources import (
    Source,
    blocking,
    choose,
    choose_class_priority,
    definition_terms,
    gang_facts,
    member_of,
    warning,
)
from muster.dialects.values import BadValue, parse_count, quoted_value
from muster.gangs.facts import GangFacts, LevelConstraint, LevelPolicy, Problem
from muster.gangs.quoting import quoted
from muster.topology.trees import label_key_tree_name

NAME: Final = "native"
DEFINITION: Final = DefinitionKind(
    "scheduling.k8s.io", "v1beta1", "PodGroup", "podgroups", older=("v1alpha3", "v1alpha2")
)
FIELD: Final = "spec.schedulingGroup"
"""The field of a pod that names its gang."""

MAX_MESSAGE_LENGTH: Final = 1024
"""Characters of a condition's message."""

_FIRST_SCHEDULED: Final = {"scheduling.k8s.io/v1alpha2": "PodGroupScheduled"}
_SCHEDULED: Final = "PodGroupInitiallyScheduled"
_DISRUPTED: Final = "DisruptionTarget"
_POLICIES: Final = ("gang", "basic")
_MAX_PRIORITY: Final = 2**31 - 1
_LABEL_KEY: Final = re.compile(
    r"(?=.{1,317}\Z)(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
    re.ASCII,
)
_TERMS: Final = (
    "schedulingPolicy.gang.minCount",
    "schedulingPolicy.basic",
    "schedulingConstraints.topology",
    "priorityClassName",
    "priority",
    "preemptionPolicy",
    "disruptionMode",
)


def membership(marks: GangMarks) -> Membership | None:
    """Returns the gang that a pod's scheduling group names; None without one."""
    if not marks.pod_group:
        return None
    return member_of(NAME, marks.namespace, marks.pod_group, f"{FIELD}.podGroupName")


def read(declaration: Declaration) -> GangFacts:
    """Reads the PodGroup; pods only name it."""
    definition = declaration.definition
    facts = gang_facts(NAME, declaration)
    pod_group = f"PodGroup {quoted(f'{declaration.namespace}/{declaration.name}')}"
    if definition is None:
        missing = f"{pod_group} ({DEFINITION.group}) does not exist yet: create it"
        return replace(facts, problems=(blocking(f"{missing}, or recreate the pods with another {FIELD}"),))
    group = _SpecReader(definition.spec, pod_group)
    minimum = group.minimum()
    key = group.topology_key()
    priority = group.priority(declaration.priorities)
    never_preempts = group.never_preempts()
    evicted_whole = group.evicted_whole()
    group.check_parent()
    return replace(
        facts,
        minimum=minimum,
        total=minimum,
        priority=priority,
        tree=label_key_tree_name(key) if key else "",
        constraints=(LevelConstraint(key, LevelPolicy.PACK, hard=True),) if key else (),
        never_preempts=never_preempts,
        evicted_whole=evicted_whole,
        terms=tuple(definition_terms(definition, _TERMS)),
        problems=tuple(group.problems),
    )


def write_progress(progress: Progress) -> Writes:
    """Returns the conditions of the PodGroup, named as in the API version that it was read by.

    The scheduled condition becomes True, finally, when all pods are bound. Before, it has the reason why the gang
    waits. While the gang is being bound nothing is written.
    """
    definition = progress.facts.definition
    if definition is None or progress.stage in (Stage.ASSIGNED, Stage.PERMITTED):
        return Writes()
    scheduled = _FIRST_SCHEDULED.get(definition.api_version, _SCHEDULED)
    conditions: list[ObjectCondition] = []
    match progress.stage:
        case Stage.BOUND:
            conditions.append(ObjectCondition(scheduled, "True", "Scheduled"))
        case Stage.GATHERING | Stage.READY | Stage.TIMED_OUT if progress.reason:
            why = progress.reason[:MAX_MESSAGE_LENGTH]
            conditions.append(ObjectCondition(scheduled, "False", "Unschedulable", why, WriteRule.UNLESS_TRUE))
        case _:
            pass
    if progress.stage is Stage.PREEMPTED:
        by = progress.preemptor.partition("/")[2]
        why = f"preempted by gang {by}" if by else progress.reason
        conditions.append(ObjectCondition(_DISRUPTED, "True", "PreemptionByScheduler", why[:MAX_MESSAGE_LENGTH]))
    else:
        over = "no pod of the group is being evicted"
        conditions.append(ObjectCondition(_DISRUPTED, "False", "NotDisrupted", over, WriteRule.IF_PRESENT))
    return Writes((ObjectWrite(definition, DEFINITION.plural, "status", conditions=tuple(conditions)),))


class _SpecReader:
    """Reads a PodGroup's spec value by value and collects the problems in it."""

    def __init__(self, spec: Mapping[str, Any], pod_group: str) -> None:
        self.problems: list[Problem] = []
        self._spec = spec
        self._of = f"of {pod_group}"

    def minimum(self) -> int:
        """Returns the minimum; 1 for a basic group, whose pods start one by one."""
        policy = self._spec.get("schedulingPolicy")
        given = [each for each in _POLICIES if isinstance(policy, Mapping) and policy.get(each) is not None]
        if len(given) != 1:
            one_of = (
                "it must have one of gang and basic: set gang.minCount to the number of pods that must start together"
            )
            self.problems.append(blocking(f"spec.schedulingPolicy {self._of} is {quoted_value(policy)}, but {one_of}"))
            return 0
        if given == ["basic"]:
            return 1
        gang = policy["gang"] if isinstance(policy, Mapping) else None
        value = gang.get("minCount") if isinstance(gang, Mapping) else None
        source = Source(value, f"spec.schedulingPolicy.gang.minCount {self._of}")
        remedy = "set it to the number of pods that must start together"
        return choose([source], parse_count, 0, self.problems, blocking, remedy)

    def topology_key(self) -> str:
        """Returns the node label that must have the same value for all pods; empty without a constraint."""
        constraints = self._spec.get("schedulingConstraints")
        listed = constraints.get("topology") if isinstance(constraints, Mapping) else constraints
        source = Source(listed, f"spec.schedulingConstraints.topology {self._of}")
        remedy = "recreate the PodGroup with the key of one node label"
        return choose([source] if listed else [], _topology_key, "", self.problems, blocking, remedy)

    def priority(self, priorities: Mapping[str, int]) -> int | None:
        """Returns the declared priority; None for that of the pods."""
        value = self._spec.get("priority")
        class_name = self._spec.get("priorityClassName")
        where = f"spec.priorityClassName {self._of}"
        if value is None or (_is_zero(value) and not class_name):
            return choose_class_priority(class_name, priorities, where, self.problems)
        none: int | None = None
        source = Source(value, f"spec.priority {self._of}")
        remedy = "the priority of the gang's pods is used instead"
        return choose([source], _priority, none, self.problems, warning, remedy)

    def never_preempts(self) -> bool:
        """Returns whether the gang must not preempt."""
        policy = self._spec.get("preemptionPolicy")
        if policy not in (None, "", "Never", "PreemptLowerPriority"):
            known = "which is neither Never nor PreemptLowerPriority: that of the pods is used instead"
            self.problems.append(warning(f"spec.preemptionPolicy {self._of} is {quoted_value(policy)}, {known}"))
        return policy == "Never"

    def evicted_whole(self) -> bool:
        """Returns whether its pods may only be evicted together."""
        mode = self._spec.get("disruptionMode")
        if mode in (None, "Pod") or (isinstance(mode, Mapping) and list(mode) == ["single"]):
            return False
        if mode == "PodGroup" or (isinstance(mode, Mapping) and list(mode) == ["all"]):
            return True
        known = 'which is neither single nor all ("Pod" or "PodGroup" in v1alpha2): all is used instead'
        self.problems.append(warning(f"spec.disruptionMode {self._of} is {quoted_value(mode)}, {known}"))
        return True

    def check_parent(self) -> None:
        """Blocks a gang of a hierarchy: starting it without the others is not what the user asked for."""
        if parent := self._spec.get("parentCompositePodGroupName"):
            where = f"spec.parentCompositePodGroupName {self._of}"
            unread = "composite pod groups are not supported: recreate the PodGroup without it"
            self.problems.append(blocking(f"{where} is {quoted_value(parent)}, but {unread}"))


def _topology_key(listed: Any) -> str:
    keys = [each.get("key") if isinstance(each, Mapping) else None for each in listed] if _is_list(listed) else []
    if len(keys) != 1:
        raise BadValue(f"{quoted_value(listed)}, which is not a list of one {{key: ...}}")
    key = keys[0]
    if not isinstance(key, str) or not _LABEL_KEY.fullmatch(key):
        raise BadValue(
            f"{quoted_value(listed)}, but a key must be that of a label, such as topology.kubernetes.io/zone"
        )
    return key


def _priority(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _MAX_PRIORITY:
        raise BadValue(f"{quoted_value(value)}, which is not a whole number of at most {_MAX_PRIORITY}")
    return value


def _is_zero(value: Any) -> bool:
    return value == 0 and not isinstance(value, bool)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


DIALECT: Final = Dialect(
    name=NAME,
    marks=PodMarks(other=lambda marks: FIELD if marks.pod_group else "", naming=f"field {FIELD}"),
    membership=membership,
    read=read,
    definition=DEFINITION,
    write_progress=write_progress,
)
