"""Volcano: PodGroup scheduling.volcano.sh/v1beta1, which pods name by the annotation of kube-batch's dialect.

Pods do not tell which of the two kinds of PodGroup they mean. So both dialects share their gang ids, which begin with
"kube-batch", and the PodGroup that exists decides; of two the older one is used.

Volcano's controller of PodGroups makes one for each pod, or for the pods of each Job, ReplicaSet or StatefulSet, that
has none, and adds the annotation to the pods. Nobody declared a gang by it: any other declaration counts instead, and
without one the pods start one by one, unless the owner asks for a minimum.

`minTaskMember` has a minimum for each task, the value of volcano.sh/task-spec on the pods. As in Volcano, it holds only
if `minMember` is at least the sum. Where not any `minMember` of the pods include enough of each task, each task is a
subgroup.

`subGroupPolicy` divides pods into subgroups by their labels.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from muster.dialects import kube_batch
from muster.dialects.definitions import Definition, DefinitionKind
from muster.dialects.dialect import Declaration, Dialect, PodMarks
from muster.dialects.kube_batch import GROUP_NAME
from muster.dialects.marks import GangMarks, MarkSet, Membership
from muster.dialects.sources import (
    Source,
    blocking,
    choose,
    choose_class_priority,
    definition_terms,
    gang_facts,
    min_resources,
    unknown_fields,
    warning,
)
from muster.dialects.subgroups import MAX_POLICIES, POLICY_FIELDS, SELECTOR_FIELDS, parse_subgroups
from muster.dialects.values import MAX_COUNT, BadValue, parse_count, parse_index, quoted_value
from muster.gangs.facts import (
    OTHER_LEVELS,
    GangFacts,
    LevelConstraint,
    LevelPolicy,
    MatchPolicy,
    Problem,
    SubgroupPolicy,
)
from muster.gangs.quoting import quoted
from muster.gangs.selectors import EVERYTHING_SELECTED, LabelSelector, Operator, Requirement
from muster.topology.constraints import is_level_name
from muster.topology.hyper_nodes import BY_TIER, BY_TIER_NAME, tier_level

NAME: Final = "volcano"
DEFINITION: Final = DefinitionKind("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups")

TASK_SPEC: Final = "volcano.sh/task-spec"
"""Annotation, else label, of a pod: its task."""
TASK_INDEX: Final = "volcano.sh/task-index"
"""Annotation of a pod: its index within its task."""

MAX_TASKS: Final = 100
"""Entries of minTaskMember."""

_NO_TASKS: Final[Mapping[str, int]] = {}
_HARD, _SOFT = "hard", "soft"
_TOPOLOGY_FIELDS: Final = ("mode", "highestTierAllowed", "highestTierName")
_TERMS: Final = (
    "minMember",
    "minTaskMember",
    "minResources",
    "priorityClassName",
    "queue",
    "networkTopology",
    "subGroupPolicy",
)


def membership(marks: GangMarks) -> Membership | None:
    """Returns the gang of a pod with a generated PodGroup; None for others, which are of kube-batch's dialect."""
    return kube_batch.named_gang(marks) if kube_batch.generated(marks) else None


def read(declaration: Declaration) -> GangFacts:
    """Reads the PodGroup, and the tasks of the pods.

    As in every session of Volcano, the minimum applies after the first start too: replaced pods wait until they and
    those that run or succeeded reach it.
    """
    definition = declaration.definition
    facts = replace(
        gang_facts(kube_batch.NAME, declaration),
        dialect=NAME,
        match_policy=MatchPolicy.WAITING_AND_RUNNING,
        counts_succeeded=True,
    )
    if definition is None:
        raise ValueError("pods without a PodGroup belong to kube-batch's dialect")
    group = _SpecReader(definition)
    group.check_fields()
    minimum = group.minimum()
    resources = min_resources(definition, group.problems)
    priority = group.priority(declaration.priorities)
    tree, constraints = group.topology()
    subgroups = group.subgroups()
    subgroups += group.tasks(minimum, declaration.pods, subgroups)
    independent = kube_batch.is_generated(definition.name) and minimum == 1 and not subgroups
    return replace(
        facts,
        minimum=minimum,
        total=minimum,
        priority=priority,
        resources=() if independent else resources,
        tree=tree,
        constraints=constraints,
        subgroups=subgroups,
        independent=independent,
        terms=tuple(definition_terms(definition, _TERMS)),
        problems=tuple(group.problems),
    )


def wanted_rank(annotations: Mapping[str, str], _labels: Mapping[str, str]) -> int:
    """Returns the index of a pod within its task; -1 if it has none, or an invalid one."""
    return parse_index(annotations.get(TASK_INDEX))


def counts_pods(definition: Definition) -> bool:
    """Returns whether there are minima for tasks, which depend on the numbers of pods."""
    return bool(definition.spec.get("minTaskMember"))


class _SpecReader:
    """Reads a PodGroup's spec value by value and collects the problems in it."""

    def __init__(self, definition: Definition) -> None:
        self.problems: list[Problem] = []
        self._spec = definition.spec
        self._of = f"of PodGroup {quoted(f'{definition.namespace}/{definition.name}')}"

    def check_fields(self) -> None:
        """Reports fields that no version of Volcano has."""
        self.problems += unknown_fields(self._spec, _TERMS, f"spec {self._of}")
        topology, policies = self._spec.get("networkTopology"), self._spec.get("subGroupPolicy")
        self.problems += unknown_fields(topology, _TOPOLOGY_FIELDS, f"spec.networkTopology {self._of}")
        for each in policies[:MAX_POLICIES] if isinstance(policies, list | tuple) else ():
            if isinstance(each, Mapping):
                where = f"policy {quoted_value(each.get('name'))} of spec.subGroupPolicy {self._of}"
                self.problems += unknown_fields(each, POLICY_FIELDS, where)
                self.problems += unknown_fields(each.get("labelSelector"), SELECTOR_FIELDS, f"labelSelector of {where}")
                self.problems += unknown_fields(
                    each.get("networkTopology"), _TOPOLOGY_FIELDS, f"networkTopology of {where}"
                )

    def minimum(self) -> int:
        """Returns minMember; 1 without it or with 0: every pod may start on its own."""
        value = self._spec.get("minMember")
        if value is None or (value == 0 and not isinstance(value, bool)):
            return 1
        source = Source(value, f"spec.minMember {self._of}")
        remedy = "set it to the number of pods that must start together"
        return choose([source], parse_count, 0, self.problems, blocking, remedy)

    def tasks(
        self, minimum: int, pods: Sequence[MarkSet], policies: Sequence[SubgroupPolicy]
    ) -> tuple[SubgroupPolicy, ...]:
        """Returns a subgroup for each task, unless any `minimum` of the pods include enough pods of each.

        `policies` are those of subGroupPolicy. A gang with too few pods of a task, or whose tasks cannot be told apart,
        is blocked.
        """
        given = self._spec.get("minTaskMember")
        where = f"spec.minTaskMember {self._of}"
        source = Source(given, where)
        remedy = "correct or remove it"
        tasks = choose([source] if given else [], _minima, _NO_TASKS, self.problems, blocking, remedy)
        if not tasks or not minimum:
            return ()
        if (total := sum(tasks.values())) > minimum:
            ignored = f"{where} adds up to {total}, above spec.minMember, {minimum}: as in Volcano, it has no effect"
            self.problems.append(warning(f"{ignored}; set minMember to at least {total} if each task needs its pods"))
            return ()
        counts = _pods_by_task(pods)
        exist = counts.total()
        if exist < minimum:
            return ()  # the gang gathers
        for task, needed in sorted(tasks.items()):
            if counts[task] < needed:
                short = f"{where} is {needed} for task {quoted(task)}, of which {counts[task]} pods exist"
                self.problems.append(
                    blocking(f"{short}: create the others with the annotation {TASK_SPEC}, or lower the number")
                )
                return ()
        surplus = exist - minimum
        if all(counts[task] - surplus >= needed for task, needed in tasks.items()):
            return ()
        try:
            return _task_policies(tasks, pods, policies)
        except BadValue as error:
            self.problems.append(blocking(f"{where} is {error}"))
            return ()

    def priority(self, priorities: Mapping[str, int]) -> int | None:
        """Returns the priority in the queue; None for that of the pods."""
        where = f"spec.priorityClassName {self._of}"
        return choose_class_priority(self._spec.get("priorityClassName"), priorities, where, self.problems)

    def subgroups(self) -> tuple[SubgroupPolicy, ...]:
        """Returns the divisions of the pods into subgroups."""
        value = self._spec.get("subGroupPolicy")
        source = Source(value, f"spec.subGroupPolicy {self._of}")
        none: tuple[SubgroupPolicy, ...] = ()
        sources = [source] if value else []
        return choose(sources, _subgroups, none, self.problems, blocking, "correct or remove it")

    def topology(self) -> tuple[str, tuple[LevelConstraint, ...]]:
        """Returns the tree and the constraints; an empty name and none without a network topology."""
        value = self._spec.get("networkTopology")
        source = Source(value, f"spec.networkTopology {self._of}")
        none: tuple[str, tuple[LevelConstraint, ...]] = ("", ())
        return choose([source] if value else [], _topology, none, self.problems, blocking, "correct or remove it")


def _minima(value: Any) -> Mapping[str, int]:
    """Parses the minima by task, without zeros. Raises BadValue."""
    if not isinstance(value, Mapping):
        raise BadValue(f"{quoted_value(value)}, which is not a map of tasks such as {{worker: 4}}")
    if len(value) > MAX_TASKS:
        raise BadValue(f"a map of {len(value)} tasks, but it must have at most {MAX_TASKS}")
    for task, number in value.items():
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MAX_COUNT:
            raise BadValue(
                f"{quoted_value(number)} for task {quoted(task)}, which is not a number of pods from 0 to {MAX_COUNT}"
            )
    return {task: number for task, number in value.items() if number}


def _topology(value: Any) -> tuple[str, tuple[LevelConstraint, ...]]:
    """Parses a network topology. Without a highest tier it only asks for low tiers. Raises BadValue.

    A tier above all HyperNodes is the whole cluster: the constraint has no effect if the tree does not have the level.
    """
    if not isinstance(value, Mapping):
        raise BadValue(f"{quoted_value(value)}, which is not of the form {{mode: hard, highestTierAllowed: 1}}")
    mode, tier, name = value.get("mode") or _HARD, value.get("highestTierAllowed"), value.get("highestTierName") or ""
    if mode not in (_HARD, _SOFT):
        raise BadValue(f"of mode {quoted_value(mode)}, which is neither hard nor soft")
    if tier is not None and name:
        both = f"highestTierAllowed {quoted_value(tier)} and highestTierName {quoted_value(name)}"
        raise BadValue(f"given with both {both}, but it must have one of them")
    if tier is not None and (isinstance(tier, bool) or not isinstance(tier, int) or not 0 <= tier <= MAX_COUNT):
        raise BadValue(f"given with highestTierAllowed {quoted_value(tier)}, which is not a number from 0")
    if not isinstance(name, str) or (name and not is_level_name(name)):
        raise BadValue(f"given with highestTierName {quoted_value(name)}, which no level of a topology tree can have")
    near = LevelConstraint(OTHER_LEVELS, LevelPolicy.PACK)
    if mode == _HARD and name:
        return BY_TIER_NAME, (LevelConstraint(name, LevelPolicy.PACK, hard=True), near)
    if mode == _HARD and tier is not None:
        above_all = tier > 0
        return BY_TIER, (LevelConstraint(tier_level(tier), LevelPolicy.PACK, hard=True, optional=above_all), near)
    return BY_TIER, (near,)


def _subgroups(value: Any) -> tuple[SubgroupPolicy, ...]:
    return parse_subgroups(value, _topology)


def _task_policies(
    tasks: Mapping[str, int], pods: Sequence[MarkSet], policies: Sequence[SubgroupPolicy]
) -> tuple[SubgroupPolicy, ...]:
    """Returns a subgroup for each task whose pods are in no subgroup of `policies`. Raises BadValue."""
    for each in pods:
        task, label = _task(each.marks), each.marks.label(TASK_SPEC) or ""
        if task != label and (task in tasks or label in tasks):
            raise BadValue(
                f"given for task {quoted(task)}, but the label {TASK_SPEC} of pod {quoted(each.oldest.name)} is "
                f"{quoted(label)}: a gang with more pods than spec.minMember needs the task as a label too"
            )
    found = []
    for task, needed in sorted(tasks.items()):
        its_label = Requirement(TASK_SPEC, Operator.IN, (task,))
        dividing = [each for each in policies if _may_select(each, task)]
        if not dividing:
            labels = EVERYTHING_SELECTED.narrowed([its_label])
            found.append(SubgroupPolicy(f"task {task}", labels, size=needed, minimum=1))
            continue
        start = sum(each.size * each.minimum for each in dividing if its_label in (each.labels.requirements or ()))
        if start < needed:
            raise BadValue(
                f"{needed} for task {quoted(task)}, but policy {quoted(dividing[0].name)} of spec.subGroupPolicy "
                f"divides its pods, and makes {start} of them start: raise its minSubGroups, or select the label "
                f"{TASK_SPEC} in it"
            )
    return tuple(found)


def _may_select(policy: SubgroupPolicy, task: str) -> bool:
    """Returns whether a policy selects pods of the task, as far as its requirements for tasks tell."""
    requirements = policy.labels.requirements
    if requirements is None:
        return False
    return LabelSelector(tuple(each for each in requirements if each.key == TASK_SPEC)).matches({TASK_SPEC: task})


def _pods_by_task(pods: Sequence[MarkSet]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for each in pods:
        counts[_task(each.marks)] += each.pods
    return counts


def _task(marks: GangMarks) -> str:
    return marks.annotation(TASK_SPEC) or marks.label(TASK_SPEC) or ""


DIALECT: Final = Dialect(
    name=NAME,
    marks=PodMarks(
        annotations=frozenset({GROUP_NAME}),
        naming=f"annotation {GROUP_NAME}",
        roles=frozenset({TASK_SPEC}),
        generated=kube_batch.generated,
    ),
    membership=membership,
    read=read,
    definition=DEFINITION,
    wanted_rank=wanted_rank,
    event_reason=kube_batch.EVENT_REASON,
    shares_ids_of=kube_batch.NAME,
    counts_pods=counts_pods,
)
