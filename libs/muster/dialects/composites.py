"""CompositePodGroup scheduling.k8s.io/v1alpha3: sets of PodGroups and further CompositePodGroups that start together.

PodGroups and CompositePodGroups name their parent. Of the children of one with `gang` at least minGroupCount start
together; of a `basic` one each starts on its own, so it counts as one with minGroupCount 1, as in kube-scheduler 1.37.
All pods below either share a domain of its topology key.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct

from muster.dialects.definitions import Definition
from muster.dialects.topology_keys import parse_topology_key
from muster.dialects.values import BadValue, describe_unknown_fields, parse_count, quoted_value
from muster.gangs.facts import CompositeFacts
from muster.gangs.quoting import quoted
from muster.topology.trees import label_key_tree_name

PARENT: Final = "parentCompositePodGroupName"
MAX_DEPTH: Final = 3
"""CompositePodGroups above a PodGroup: with it, the four levels that the API allows."""
MAX_GANGS: Final = 100
"""PodGroups below one CompositePodGroup."""
PRIORITY_FIELDS: Final = ("priorityClassName", "priority")
_POLICIES: Final = ("gang", "basic")
_FIELDS: Final = (
    "disruptionMode",
    "preemptionPolicy",
    "schedulingConstraints",
    "schedulingPolicy",
    "workloadRef",
    PARENT,
    *PRIORITY_FIELDS,
)


class CompositeSpec(Struct, frozen=True):
    """Declaration of a CompositePodGroup. `minimum`: groups that must start together; 0: it is basic, and 1 suffices.
    `key`: node label that has one value for all pods below. `priority` has the fields priority and priorityClassName
    that are given. `problem`: what is invalid, in words; `warnings`: what is read, but not done.
    """

    namespace: str
    name: str
    parent: str = ""
    minimum: int = 0
    key: str = ""
    workload: str = ""
    priority: tuple[tuple[str, Any], ...] = ()
    never_preempts: bool = False
    problem: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """How messages name it."""
        return f"CompositePodGroup {quoted(f'{self.namespace}/{self.name}')}"


class TreeProblem(NamedTuple):
    """Problem that keeps the groups in a CompositePodGroup from starting, in words. `invalid`: until an object is
    corrected; else until one is created.
    """

    message: str
    invalid: bool = True


class Ancestry(Struct, frozen=True):
    """CompositePodGroups above a PodGroup, the innermost first, with the numbers of their children. `gangs`: ids of the
    gangs that start with that of the PodGroup. `problem`: why there is no such set, in words.
    """

    composites: tuple[CompositeSpec, ...] = ()
    children: tuple[int, ...] = ()
    gangs: tuple[str, ...] = ()
    problem: str = ""


def read_composite(definition: Definition) -> CompositeSpec:
    """Reads a CompositePodGroup; the first invalid value is its problem."""
    spec = definition.spec
    minimum, key, problem = 0, "", ""
    where = f"of CompositePodGroup {quoted(f'{definition.namespace}/{definition.name}')}"
    try:
        minimum = _minimum(spec.get("schedulingPolicy"), where)
        key = _topology_key(spec.get("schedulingConstraints"), where)
        if (parent := spec.get(PARENT)) is not None and not isinstance(parent, str):
            names = "which is no name of a CompositePodGroup: recreate it with another"
            raise BadValue(f"spec.{PARENT} {where} is {quoted_value(parent)}, {names}")
    except BadValue as error:
        problem = str(error)
    return CompositeSpec(
        definition.namespace,
        definition.name,
        parent_of(spec),
        minimum,
        key,
        workload_of(spec),
        tuple([(field, value) for field in PRIORITY_FIELDS if (value := spec.get(field)) not in (None, "", 0)]),
        spec.get("preemptionPolicy") == "Never",
        problem,
        tuple(_warnings(spec, where)),
    )


def parent_of(spec: Mapping[str, Any]) -> str:
    """Returns the name of the parent that a PodGroup or CompositePodGroup names; empty: none."""
    return _text(spec.get(PARENT))


def workload_of(spec: Mapping[str, Any]) -> str:
    """Returns the name of the Workload of a PodGroup or CompositePodGroup; empty: none."""
    reference = spec.get("workloadRef")
    return _text(reference.get("workloadName")) if isinstance(reference, Mapping) else ""


def starting_together(composites: Sequence[CompositeSpec]) -> Sequence[CompositeSpec]:
    """Returns those of the composites, innermost first, below which gangs depend on each other: without the basic ones
    above them that have no topology key.
    """
    count = max((at + 1 for at, each in enumerate(composites) if each.minimum or each.key), default=0)
    return composites[:count]


def problem_of(composites: Sequence[CompositeSpec], children: Sequence[int]) -> TreeProblem | None:
    """Returns what keeps the gangs below the composites, innermost first, from starting; None: nothing."""
    for each in composites:
        if each.problem:
            return TreeProblem(each.problem)
    workloads = sorted({each.workload for each in composites if each.workload})
    if len(workloads) > 1:
        names = ", ".join(map(quoted, workloads[:3]))
        return TreeProblem(f"{composites[-1].label} and those below it are of several Workloads: {names}; use one")
    for each, count in zip(composites, children, strict=True):
        if each.minimum > count:
            lacks = f"{each.label} needs {each.minimum} groups, of which {count} exist"
            return TreeProblem(f"{lacks}: create the others, or lower minGroupCount", invalid=False)
    return None


def warnings_of(composites: Sequence[CompositeSpec], spec: Mapping[str, Any]) -> Iterator[str]:
    """Returns what is read in the composites, but not done, for a PodGroup below them with this spec."""
    declared = any(spec.get(field) for field in PRIORITY_FIELDS)
    for each in composites:
        yield from each.warnings
        for field, value in each.priority:
            where = f"spec.{field} of {each.label} is {quoted_value(value)}"
            if not declared:
                yield f"{where}, which the PodGroup lacks: all groups of a Workload must have the same"
            elif (own := spec.get(field)) is not None and own != value:
                yield f"{where}, but {quoted_value(own)} of the PodGroup is used: all groups must have the same"


def composite_facts(composites: Sequence[CompositeSpec]) -> tuple[CompositeFacts, ...]:
    """Returns the sets of gangs that depend on each other, the outermost first."""
    return tuple(
        CompositeFacts(
            f"{each.namespace}/{each.name}",
            label_key_tree_name(each.key) if each.key else "",
            each.key,
            max(1, each.minimum),
        )
        for each in reversed(starting_together(composites))
    )


def _minimum(policy: Any, where: str) -> int:
    given = [each for each in _POLICIES if isinstance(policy, Mapping) and policy.get(each) is not None]
    if len(given) != 1 or not isinstance(policy, Mapping):
        remedy = "it must have one of gang and basic: recreate it with gang.minGroupCount"
        raise BadValue(f"spec.schedulingPolicy {where} is {quoted_value(policy)}, but {remedy}")
    if given == ["basic"]:
        return 0
    gang = policy["gang"]
    count = gang.get("minGroupCount") if isinstance(gang, Mapping) else None
    try:
        return parse_count(count)
    except BadValue as error:
        remedy = "set it to the number of groups that must start together"
        raise BadValue(f"spec.schedulingPolicy.gang.minGroupCount {where} is {error}: {remedy}") from None


def _topology_key(constraints: Any, where: str) -> str:
    listed = constraints.get("topology") if isinstance(constraints, Mapping) else constraints
    try:
        return parse_topology_key(listed) if listed else ""
    except BadValue as error:
        remedy = "recreate it with the key of one node label"
        raise BadValue(f"spec.schedulingConstraints.topology {where} is {error}: {remedy}") from None


def _warnings(spec: Mapping[str, Any], where: str) -> Iterator[str]:
    """Returns what is read in a spec, but not done, in words."""
    mode, policy = spec.get("disruptionMode"), spec.get("schedulingPolicy")
    alone = "each PodGroup is evicted on its own"
    if isinstance(mode, Mapping) and list(mode) == ["all"]:
        yield f"spec.disruptionMode {where} is all, which is not supported for several PodGroups: {alone}"
    elif mode is not None and not (isinstance(mode, Mapping) and list(mode) == ["single"]):
        yield f"spec.disruptionMode {where} is {quoted_value(mode)}, which is neither single nor all: {alone}"
    unknown = [key for key in policy if key not in _POLICIES] if isinstance(policy, Mapping) else []
    if unknown:
        keys = ", ".join(map(quoted, unknown[:3]))
        yield f"spec.schedulingPolicy {where} has {keys}, which is not known: only gang and basic are used"
    preemption = spec.get("preemptionPolicy")
    if preemption not in (None, "", "Never", "PreemptLowerPriority"):
        known = "which is neither Never nor PreemptLowerPriority: that of the PodGroup is used instead"
        yield f"spec.preemptionPolicy {where} is {quoted_value(preemption)}, {known}"
    yield from _unknown_fields(spec, where)


def _unknown_fields(spec: Mapping[str, Any], where: str) -> Iterator[str]:
    """Names fields that no version of the API has. Those of schedulingPolicy are policies, which are named before."""
    policy, constraints = spec.get("schedulingPolicy"), spec.get("schedulingConstraints")
    gang = policy.get("gang") if isinstance(policy, Mapping) else None
    topology = constraints.get("topology") if isinstance(constraints, Mapping) else None
    first = topology[0] if isinstance(topology, list | tuple) and topology else None
    for given, known, field in (
        (spec, _FIELDS, "spec"),
        (gang, ("minGroupCount",), "spec.schedulingPolicy.gang"),
        (constraints, ("topology",), "spec.schedulingConstraints"),
        (first, ("key",), "spec.schedulingConstraints.topology"),
    ):
        if unknown := describe_unknown_fields(given, known, f"{field} {where}"):
            yield unknown


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
