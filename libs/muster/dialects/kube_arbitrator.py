"""kube-arbitrator: SchedulingSpec arbitrator.incubator.k8s.io/v1alpha1, for the pods that have the same controller.

No pod names its gang. Its controller is named by an ownerReference of the pod and by one of the SchedulingSpec; who
knows both sees to it that the pod's marks name the controller (GangMarks.job).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from muster.dialects.declared import Source, blocking, chosen, facts, oldest_first, warning
from muster.dialects.marks import NO_PRIORITIES, Definition, DefinitionKind, GangMarks, Job, MarkSet, Membership, Pairs
from muster.dialects.values import BadValue, count, shown
from muster.gangs.facts import GangFacts, MatchPolicy, Problem
from muster.gangs.quoting import quoted

NAME: Final = "kube-arbitrator"
DEFINITION: Final = DefinitionKind("arbitrator.incubator.k8s.io", "v1alpha1", "SchedulingSpec", "schedulingspecs")

LABELS: Final[frozenset[str]] = frozenset()
ANNOTATIONS: Final[frozenset[str]] = frozenset()

NAMING: Final = "an ownerReference with controller: true, on the pod and on a SchedulingSpec"
"""How a pod of this dialect names its gang."""

MOST_LABELS: Final = 100
"""Entries of a nodeSelector; no node has as many labels that matter."""

_WITHOUT_CONTROLLER: Final = "has no ownerReference with controller: true, so it is nobody's: add the one of its pods"
_INT32: Final = range(-(2**31), 2**31)


def membership(marks: GangMarks) -> Membership | None:
    """The job of the pod's controller; None if that has no SchedulingSpec and need not have one."""
    return Membership(gang_id=f"{NAME}/{marks.namespace}/{marks.job}") if marks.job else None


def controller_of(marks: GangMarks) -> str:
    """What makes a pod a member, in words."""
    return f"the controller {_controller(marks.job)}, which a SchedulingSpec has too"


def gang_of(definition: Definition) -> str:
    """Kind and name of the controller. One without a controller defines a gang of its own name, which nobody joins: it
    is there to say what is wrong. Kinds begin with a capital, names of objects never do, so the two never meet.
    """
    owner = definition.controller
    return f"{owner.kind}.{owner.name}" if owner is not None else definition.name


def job(definition: Definition) -> Job | None:
    """The controller whose pods are one gang, and where these may go; None if it has no controller."""
    owner = definition.controller
    if owner is None:
        return None
    try:
        selector = node_selector(definition.spec.get("nodeSelector"))
    except BadValue:  # the gang waits for that: see read
        selector = ()
    name = gang_of(definition)
    gang_id = f"{NAME}/{definition.namespace}/{name}"
    return Job(owner.uid, name, gang_id, selector, f"nodeSelector of {_words(definition)}")


def read(
    namespace: str,
    name: str,
    definition: Definition | None,
    mark_sets: Iterable[MarkSet],
    priorities: Mapping[str, int] = NO_PRIORITIES,
) -> GangFacts:
    """What the SchedulingSpec declares. Its minimum holds again and again: pods that are made anew wait until they and
    those that run reach it, as in kube-arbitrator's every cycle.
    """
    declared = facts(NAME, namespace, name, definition, oldest_first(mark_sets))
    declared = replace(declared, match_policy=MatchPolicy.WAITING_AND_RUNNING, counts_succeeded=True, starts_anew=True)
    if definition is None:
        missing = blocking(
            f"no SchedulingSpec ({DEFINITION.api_version}) has {_controller(name)} as its controller yet: "
            "create one, with the ownerReference that the pods have"
        )
        return replace(declared, problems=(missing,))
    problems: list[Problem] = []
    if definition.controller is None:
        problems.append(blocking(f"{_words(definition)} {_WITHOUT_CONTROLLER}"))
    minimum = _minimum(definition, problems)
    _check_selector(definition, problems)
    return replace(
        declared,
        minimum=minimum,
        total=minimum,
        priority=_priority(definition, priorities, problems),
        terms=_terms(definition),
        problems=tuple(problems),
    )


def node_selector(value: object) -> Pairs:
    """Labels that a node must have, sorted. Raises BadValue."""
    if value is None:
        return ()
    if not isinstance(value, dict) or not all(isinstance(each, str) for pair in value.items() for each in pair):
        raise BadValue(f"{shown(value)}, which is not a map of labels such as {{zone: a}}")
    if len(value) > MOST_LABELS:
        raise BadValue(f"a map of {len(value)} labels, but it must have at most {MOST_LABELS}")
    return tuple(sorted(value.items()))


def _minimum(definition: Definition, problems: list[Problem]) -> int:
    """Without minAvailable, or with 0, every pod may start by itself, as in kube-arbitrator."""
    given = definition.spec.get("minAvailable")
    if given is None or (given == 0 and not isinstance(given, bool)):
        return 1
    sources = [Source(given, f"spec.minAvailable of {_words(definition)}")]
    return chosen(sources, count, 0, problems, blocking, "set it to the number of pods that must start together")


def _check_selector(definition: Definition, problems: list[Problem]) -> None:
    try:
        node_selector(definition.spec.get("nodeSelector"))
    except BadValue as error:
        problems.append(blocking(f"spec.nodeSelector of {_words(definition)} is {error}: correct it, or take it away"))


def _priority(definition: Definition, priorities: Mapping[str, int], problems: list[Problem]) -> int | None:
    """The class's value goes before `priority`, as admission would have it; None: that of the pods counts."""
    class_name, value = definition.spec.get("priorityClassName"), definition.spec.get("priority")
    number = chosen(
        [Source(value, f"spec.priority of {_words(definition)}")] if value is not None else [],
        _int32,
        None,
        problems,
        warning,
        "the priority of the pods counts",
    )
    if class_name is None or class_name == "":
        return number
    resolved = priorities.get(class_name) if isinstance(class_name, str) else None
    where = f"spec.priorityClassName of {_words(definition)} is {shown(class_name)}"
    if resolved is None:
        otherwise = "the priority of the pods" if number is None else f"priority {number}"
        problems.append(
            warning(f"{where}, but there is no such PriorityClass: create it; till then {otherwise} counts")
        )
        return number
    if number is not None and number != resolved:
        problems.append(warning(f"{where}, which is {resolved} and counts, but spec.priority is {number}"))
    return resolved


def _int32(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool) or value not in _INT32:
        raise BadValue(f"{shown(value)}, which is not a whole number of 32 bits")
    return value


def _terms(definition: Definition) -> tuple[str, ...]:
    where = f"(SchedulingSpec {definition.namespace}/{definition.name})"
    given = ((key, definition.spec.get(key)) for key in ("minAvailable", "priorityClassName", "priority"))
    said = [f"{key}: {_plain(value)} {where}" for key, value in given if value is not None and value != ""]
    selector = definition.spec.get("nodeSelector")
    return (*said, f"nodeSelector: {_plain(selector)} {where}") if selector else tuple(said)


def _plain(value: Any) -> str:
    return shown(value).removeprefix('"').removesuffix('"')


def _controller(job_name: str) -> str:
    kind, _, name = job_name.partition(".")
    return f"{kind} {quoted(name)}"


def _words(definition: Definition) -> str:
    return f"SchedulingSpec {quoted(f'{definition.namespace}/{definition.name}')}"
