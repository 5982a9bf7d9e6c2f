"""kube-arbitrator: SchedulingSpec arbitrator.incubator.k8s.io/v1alpha1, for the pods that have the same controller.

Pods do not name their gang. An ownerReference of the pod and one of the SchedulingSpec name the same controller;
cluster-state matches them and sets the controller in the pod's marks (GangMarks.controller).
"""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from muster.dialects.definitions import ControllerGang, Definition, DefinitionKind
from muster.dialects.dialect import Declaration, Dialect, PodMarks
from muster.dialects.marks import GangMarks, Membership, Pairs
from muster.dialects.sources import Source, blocking, choose, definition_terms, gang_facts, unknown_fields, warning
from muster.dialects.values import BadValue, parse_count, quoted_value
from muster.gangs.facts import GangFacts, MatchPolicy, Problem
from muster.gangs.quoting import quoted

NAME: Final = "kube-arbitrator"
DEFINITION: Final = DefinitionKind("arbitrator.incubator.k8s.io", "v1alpha1", "SchedulingSpec", "schedulingspecs")

MAX_LABELS: Final = 100
"""Entries of a nodeSelector. Nodes have fewer labels that matter for scheduling."""

_NO_CONTROLLER: Final = (
    "has no ownerReference with controller: true, so it has no pods: add the ownerReference of its pods"
)
_INT32: Final = range(-(2**31), 2**31)
_FIELDS: Final = ("minAvailable", "priorityClassName", "priority")


def membership(marks: GangMarks) -> Membership | None:
    """Returns the gang of the pod's controller; None if that controller is not a gang."""
    return Membership(gang_id=f"{NAME}/{marks.namespace}/{marks.controller}") if marks.controller else None


def gang_name(definition: Definition) -> str:
    """Returns "Kind.name" of the controller.

    A definition without a controller defines a gang of its own name without members, which reports the problem. Kinds
    start with a capital letter and object names never do, so these names cannot collide.
    """
    owner = definition.controller
    return f"{owner.kind}.{owner.name}" if owner is not None else definition.name


def controller_gang(definition: Definition) -> ControllerGang | None:
    """Returns the controller whose pods are the gang, and their node selector; None without a controller.

    A malformed selector is ignored here: `read` reports it and blocks the gang.
    """
    owner = definition.controller
    if owner is None:
        return None
    try:
        selector = parse_node_selector(definition.spec.get("nodeSelector"))
    except BadValue:
        selector = ()
    name = gang_name(definition)
    gang_id = f"{NAME}/{definition.namespace}/{name}"
    return ControllerGang(owner.uid, name, gang_id, selector, f"nodeSelector of {_title(definition)}")


def read(declaration: Declaration) -> GangFacts:
    """Reads the SchedulingSpec.

    As in every cycle of kube-arbitrator, the minimum applies after the first start too: replaced pods wait until they
    and the running ones reach it.
    """
    definition = declaration.definition
    facts = replace(
        gang_facts(NAME, declaration),
        match_policy=MatchPolicy.WAITING_AND_RUNNING,
        counts_succeeded=True,
    )
    if definition is None:
        missing = blocking(
            f"no SchedulingSpec ({DEFINITION.api_version}) has {_controller(declaration.name)} as its controller yet: "
            "create one, with the ownerReference that the pods have"
        )
        return replace(facts, problems=(missing,))
    problems: list[Problem] = []
    if definition.controller is None:
        problems.append(blocking(f"{_title(definition)} {_NO_CONTROLLER}"))
    minimum = _minimum(definition, problems)
    _check_selector(definition, problems)
    problems += unknown_fields(definition.spec, (*_FIELDS, "nodeSelector"), f"spec of {_title(definition)}")
    return replace(
        facts,
        minimum=minimum,
        total=minimum,
        priority=_priority(definition, declaration.priorities, problems),
        terms=_terms(definition),
        problems=tuple(problems),
    )


def parse_node_selector(value: object) -> Pairs:
    """Returns the labels that a node must have, sorted by key. Raises BadValue."""
    if value is None:
        return ()
    if not isinstance(value, dict) or not all(isinstance(each, str) for pair in value.items() for each in pair):
        raise BadValue(f"{quoted_value(value)}, which is not a map of labels such as {{zone: a}}")
    if len(value) > MAX_LABELS:
        raise BadValue(f"a map of {len(value)} labels, but it must have at most {MAX_LABELS}")
    return tuple(sorted(value.items()))


def _minimum(definition: Definition, problems: list[Problem]) -> int:
    """Returns 1 without minAvailable or with 0: every pod may start on its own, as in kube-arbitrator."""
    given = definition.spec.get("minAvailable")
    if given is None or (given == 0 and not isinstance(given, bool)):
        return 1
    sources = [Source(given, f"spec.minAvailable of {_title(definition)}")]
    return choose(sources, parse_count, 0, problems, blocking, "set it to the number of pods that must start together")


def _check_selector(definition: Definition, problems: list[Problem]) -> None:
    try:
        parse_node_selector(definition.spec.get("nodeSelector"))
    except BadValue as error:
        problems.append(blocking(f"spec.nodeSelector of {_title(definition)} is {error}: correct or remove it"))


def _priority(definition: Definition, priorities: Mapping[str, int], problems: list[Problem]) -> int | None:
    """Returns the class's value, else `priority`, as admission does; None for the priority of the pods."""
    class_name, value = definition.spec.get("priorityClassName"), definition.spec.get("priority")
    number = choose(
        [Source(value, f"spec.priority of {_title(definition)}")] if value is not None else [],
        _int32,
        None,
        problems,
        warning,
        "the priority of the pods is used",
    )
    if class_name is None or class_name == "":
        return number
    resolved = priorities.get(class_name) if isinstance(class_name, str) else None
    where = f"spec.priorityClassName of {_title(definition)} is {quoted_value(class_name)}"
    if resolved is None:
        otherwise = "the priority of the pods" if number is None else f"priority {number}"
        problems.append(
            warning(f"{where}, but there is no such PriorityClass: create it; until then {otherwise} is used")
        )
        return number
    if number is not None and number != resolved:
        problems.append(warning(f"{where}, which is {resolved} and is used, but spec.priority is {number}"))
    return resolved


def _int32(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool) or value not in _INT32:
        raise BadValue(f"{quoted_value(value)}, which is not a whole number of 32 bits")
    return value


def _terms(definition: Definition) -> tuple[str, ...]:
    fields = (*_FIELDS, "nodeSelector") if definition.spec.get("nodeSelector") else _FIELDS
    return tuple(definition_terms(definition, fields))


def _controller(name: str) -> str:
    kind, _, object_name = name.partition(".")
    return f"{kind} {quoted(object_name)}"


def _title(definition: Definition) -> str:
    return f"SchedulingSpec {quoted(f'{definition.namespace}/{definition.name}')}"


def _controller_mark(marks: GangMarks) -> str:
    if not marks.controller:
        return ""
    return f"the controller {_controller(marks.controller)}, which a SchedulingSpec has too"


DIALECT: Final = Dialect(
    name=NAME,
    marks=PodMarks(
        other=_controller_mark, naming="an ownerReference with controller: true, on the pod and on a SchedulingSpec"
    ),
    membership=membership,
    read=read,
    definition=DEFINITION,
    gang_name=gang_name,
    controller_gang=controller_gang,
)
