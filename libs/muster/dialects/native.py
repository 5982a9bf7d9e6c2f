"""Kubernetes' own gangs: PodGroup scheduling.k8s.io, which pods name by spec.schedulingGroup.podGroupName.

The versions of the API differ little in what is read here:

    v1alpha2 (1.36)    disruptionMode: "Pod" | "PodGroup"          condition PodGroupScheduled
    v1alpha3 (1.37)    disruptionMode: {single: {}} | {all: {}}    condition PodGroupInitiallyScheduled
    v1beta1  (1.37)    the same                                    the same

The priority is spec.priority, which the API server fills in from the priority class where it can, else that of the
class, else that of the pods. Without a class the API server may fill in 0; that value is ignored. A topology key
defines a tree of its own, whose domains are the values of that label.

Controllers create PodGroups for the pods of all schedulers. So one without a pod of Muster's is no gang, and a basic
one that a controller created leaves its pods plain.
"""

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from muster.dialects.composites import PARENT, Ancestry, composite_facts, warnings_of, workload_of
from muster.dialects.definitions import Definition, DefinitionKind
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
    undeclared,
    unknown_fields,
    warning,
)
from muster.dialects.topology_keys import parse_topology_key
from muster.dialects.values import BadValue, parse_count, quoted_value
from muster.gangs.facts import GangFacts, LevelConstraint, LevelPolicy, Problem
from muster.gangs.quoting import quoted
from muster.topology.trees import label_key_tree_name

NAME: Final = "native"
DEFINITION: Final = DefinitionKind(
    "scheduling.k8s.io", "v1beta1", "PodGroup", "podgroups", older=("v1alpha3", "v1alpha2")
)
COMPOSITE: Final = DefinitionKind("scheduling.k8s.io", "v1alpha3", "CompositePodGroup", "compositepodgroups")
FIELD: Final = "spec.schedulingGroup"
"""The field of a pod that names its gang."""

MAX_MESSAGE_LENGTH: Final = 1024
"""Characters of a condition's message."""

_FIRST_SCHEDULED: Final = {"scheduling.k8s.io/v1alpha2": "PodGroupScheduled"}
SCHEDULED: Final = "PodGroupInitiallyScheduled"
"""The condition of a PodGroup that has started, since v1alpha3."""
_DISRUPTED: Final = "DisruptionTarget"
_POLICIES: Final = ("gang", "basic")
_MAX_PRIORITY: Final = 2**31 - 1
_FIELDS: Final = (
    "disruptionMode",
    "podGroupTemplateRef",  # v1alpha2
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "resourceClaims",
    "schedulingConstraints",
    "schedulingPolicy",
    "workloadRef",
    PARENT,
)
_TERMS: Final = (
    "schedulingPolicy.gang.minCount",
    "schedulingPolicy.basic",
    "schedulingConstraints.topology",
    "priorityClassName",
    "priority",
    "preemptionPolicy",
    "disruptionMode",
    PARENT,
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
        return replace(facts, problems=(undeclared(f"{missing}, or recreate the pods with another {FIELD}"),))
    group = _SpecReader(definition.spec, pod_group)
    group.check_fields()
    minimum = group.minimum()
    key = group.topology_key()
    priority = group.priority(declaration.priorities)
    never_preempts = group.never_preempts()
    evicted_whole = group.evicted_whole()
    ancestry = group.ancestry(declaration.ancestry)
    return replace(
        facts,
        minimum=minimum,
        total=minimum,
        priority=priority,
        tree=label_key_tree_name(key) if key else "",
        constraints=(LevelConstraint(key, LevelPolicy.PACK, hard=True),) if key else (),
        never_preempts=never_preempts or any(each.never_preempts for each in ancestry.composites),
        evicted_whole=evicted_whole,
        independent=group.is_basic(),
        group=ancestry.gangs,
        composites=composite_facts(ancestry.composites),
        terms=tuple(definition_terms(definition, _TERMS)),
        problems=tuple(group.problems),
    )


def has_plain_pods(definition: Definition) -> bool:
    """Returns whether the PodGroup is one that a controller, such as Job's, creates for any pods: basic and no more."""
    spec, policy = definition.spec, definition.spec.get("schedulingPolicy")
    declared = any(spec.get(each) for each in ("schedulingConstraints", "parentCompositePodGroupName"))
    return (
        definition.controller is not None
        and isinstance(policy, Mapping)
        and [key for key, value in policy.items() if value is not None] == ["basic"]
        and not declared
        and spec.get("preemptionPolicy") in (None, "", "PreemptLowerPriority")
        and spec.get("disruptionMode") in (None, "Pod", {"single": {}})
        and not any(key.startswith("muster.dev/") for key in definition.annotations)
    )


def write_progress(progress: Progress) -> Writes:
    """Returns the conditions of the PodGroup, named as in the API version that it was read by.

    The scheduled condition becomes True, finally, when all pods are bound. Before, it has the reason why the gang
    waits. While the gang is being bound, or when none of its pods is left, it is not written.
    """
    definition = progress.facts.definition
    if definition is None or progress.stage in (Stage.ASSIGNED, Stage.PERMITTED):
        return Writes()
    scheduled = _FIRST_SCHEDULED.get(definition.api_version, SCHEDULED)
    conditions: list[ObjectCondition] = []
    match progress.stage:
        case Stage.ENDED if not any(each.bound for each in progress.members):
            pass  # what was written while it ran remains
        case Stage.BOUND | Stage.ENDED:
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

    def check_fields(self) -> None:
        """Reports fields that no version of the API has, such as those of a newer one."""
        constraints = self._spec.get("schedulingConstraints")
        policy = self._spec.get("schedulingPolicy")
        self.problems += unknown_fields(self._spec, _FIELDS, f"spec {self._of}")
        if isinstance(policy, Mapping):
            self.problems += unknown_fields(policy.get("gang"), ("minCount",), f"spec.schedulingPolicy.gang {self._of}")
            self.problems += unknown_fields(policy.get("basic"), (), f"spec.schedulingPolicy.basic {self._of}")
        if isinstance(constraints, Mapping):
            self.problems += unknown_fields(constraints, ("topology",), f"spec.schedulingConstraints {self._of}")
            topology = constraints.get("topology")
            for each in topology[:1] if isinstance(topology, list | tuple) else ():
                self.problems += unknown_fields(each, ("key",), f"spec.schedulingConstraints.topology {self._of}")

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
        if unknown := [each for each in policy if each not in _POLICIES] if isinstance(policy, Mapping) else []:
            keys = ", ".join(map(quoted, unknown[:3]))
            used = f"{quoted_value(policy)}, of which only {given[0]} is known and used"
            self.problems.append(warning(f"spec.schedulingPolicy {self._of} has {keys}: {used}"))
        if given == ["basic"]:
            return 1
        gang = policy["gang"] if isinstance(policy, Mapping) else None
        value = gang.get("minCount") if isinstance(gang, Mapping) else None
        source = Source(value, f"spec.schedulingPolicy.gang.minCount {self._of}")
        remedy = "set it to the number of pods that must start together"
        return choose([source], parse_count, 0, self.problems, blocking, remedy)

    def is_basic(self) -> bool:
        """Returns whether it is a basic group."""
        policy = self._spec.get("schedulingPolicy")
        return isinstance(policy, Mapping) and policy.get("basic") is not None and policy.get("gang") is None

    def topology_key(self) -> str:
        """Returns the node label that must have the same value for all pods; empty without a constraint."""
        constraints = self._spec.get("schedulingConstraints")
        listed = constraints.get("topology") if isinstance(constraints, Mapping) else constraints
        source = Source(listed, f"spec.schedulingConstraints.topology {self._of}")
        remedy = "recreate the PodGroup with the key of one node label"
        return choose([source] if listed else [], parse_topology_key, "", self.problems, blocking, remedy)

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

    def ancestry(self, given: Ancestry | None) -> Ancestry:
        """Returns the CompositePodGroups above the PodGroup; a gang that cannot start with the others is blocked."""
        parent = self._spec.get(PARENT)
        if given is None and not parent:
            return Ancestry()
        if given is None or given.problem:
            problem = (
                given.problem
                if given is not None
                else "that is no name of a CompositePodGroup: recreate it with another"
            )
            self.problems.append(blocking(f"spec.{PARENT} {self._of} is {quoted_value(parent)}, but {problem}"))
            return Ancestry()
        own, theirs = workload_of(self._spec), next((each for each in given.composites if each.workload), None)
        if own and theirs is not None and own != theirs.workload:
            several = f"which {theirs.label} does not belong to, but to {quoted(theirs.workload)}: use one"
            self.problems.append(blocking(f"spec.workloadRef {self._of} names {quoted(own)}, {several}"))
            return Ancestry()
        self.problems += [warning(each) for each in warnings_of(given.composites, self._spec)]
        return given


def _priority(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _MAX_PRIORITY:
        raise BadValue(f"{quoted_value(value)}, which is not a whole number of at most {_MAX_PRIORITY}")
    return value


def _is_zero(value: Any) -> bool:
    return value == 0 and not isinstance(value, bool)


DIALECT: Final = Dialect(
    name=NAME,
    marks=PodMarks(other=lambda marks: FIELD if marks.pod_group else "", naming=f"field {FIELD}"),
    membership=membership,
    read=read,
    definition=DEFINITION,
    write_progress=write_progress,
    has_plain_pods=has_plain_pods,
    defined_by_pods=True,
)
