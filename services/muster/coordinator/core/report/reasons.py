"""The current reason why a gang, or a part of it, is not running, as one sentence (I10)."""

import re
from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from msgspec.structs import replace

from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.gang.uncounted import not_created
from muster.dialects.registry import timeout_annotations
from muster.gangs.facts import GangMode, NodeRequirement, NodeSelectorTerm, PodClass, Severity
from muster.gangs.solve import Explanation
from muster.topology.constraints import as_text

_NUMBER: Final = re.compile(r"\d+")


class Kind(Enum):
    """Kinds of reasons; two reasons of one kind differ in numbers and details."""

    NONE = auto()
    GATHERING = auto()
    CANNOT_START = auto()
    UNTRIED = auto()
    """As CANNOT_START, but the attempt itself failed; whether the gang fits is unknown."""
    HOLDING = auto()
    LATER_GATHERING = auto()
    LATER_CANNOT_START = auto()
    LATER_UNTRIED = auto()
    RAISED = auto()
    """The minimum was raised above what runs, and no further member exists."""
    LOST = auto()
    NOT_BOUND = auto()
    MARKED = auto()
    BAD_POD = auto()
    """A reason of one pod, not of its gang."""


class Theme(NamedTuple):
    """Identity of a reason: its kind and the details, besides numbers, that make it a different one."""

    kind: Kind
    about: str = ""


NOTHING: Final = Theme(Kind.NONE)
LATER: Final = frozenset({Kind.LATER_GATHERING, Kind.LATER_CANNOT_START, Kind.LATER_UNTRIED})
"""Reasons of pods beside those that run: they are of all such pods together."""
_PASSES: Final = {Kind.CANNOT_START: Kind.UNTRIED, Kind.LATER_CANNOT_START: Kind.LATER_UNTRIED}


def kind(gang: Gang) -> Kind:
    """Returns the kind of the gang's reason; cheaper than the reason."""
    group = gang.group
    if gang.permit.granted:
        if not gang.pending:
            if gang.seats and gang.bind.failure:
                return Kind.NOT_BOUND
            if gang.hold.marked:
                return Kind.MARKED
            return Kind.RAISED if gang.raised_from and not gang.seats else Kind.NONE
        if gang.lost:
            return Kind.LOST
        if group.not_ready is not None:
            return Kind.LATER_GATHERING
        if group.queueing.failure:
            return Kind.LATER_UNTRIED
        return Kind.LATER_CANNOT_START if group.solve.explanation is not None else Kind.NONE
    if gang.seats and group.persist_id is None:
        return Kind.HOLDING
    if group.not_ready is not None:
        return Kind.GATHERING
    if not gang.pending or group.persist_id is not None:
        return Kind.NONE
    if group.queueing.failure:
        return Kind.UNTRIED
    return Kind.CANNOT_START if group.solve.explanation is not None else Kind.NONE


def theme(gang: Gang) -> Theme:
    """Returns the identity of the gang's reason. For a gated gang it includes the gate, without numbers; of a running
    one, whether its minimum was raised.
    """
    found = kind(gang)
    gathering = gang.group.not_ready if found in (Kind.GATHERING, Kind.LATER_GATHERING) else None
    about = _NUMBER.sub("#", gathering) if gathering else ""
    raised = gang.permit.granted and gang.raised_from
    return Theme(found, f"{about} (minimum raised)" if raised else about)


def is_news(before: Theme, after: Theme) -> bool:
    """Whether a change of reasons must be reported at once.

    A failed attempt after "cannot start" is no news: otherwise every restart of a service would rewrite the conditions
    of all pending gangs twice.
    """
    return before != after and _PASSES.get(before.kind) is not after.kind


def reason(gang: Gang) -> str:
    """Returns the reason in the user's terms; empty if nothing blocks the gang."""
    name, gathering = f"{'pod' if gang.plain else 'gang'} {gang.label}", gang.group.not_ready
    match kind(gang):
        case Kind.GATHERING:
            return f"{name} is pending: {gathering}"
        case Kind.CANNOT_START | Kind.UNTRIED:
            return f"{name} cannot start{_because(gang)}"
        case Kind.HOLDING:
            return _holding(gang)
        case Kind.LATER_GATHERING:
            later = "1 later pod is" if len(gang.pending) == 1 else f"{len(gang.pending)} later pods are"
            return f"gang {gang.label} {_goes_on(gang)}; {later} pending: {gathering}"
        case Kind.LATER_CANNOT_START | Kind.LATER_UNTRIED:
            more = f"{len(gang.pending)} more of its pods cannot start"
            return f"gang {gang.label} {_goes_on(gang)}; {more}{_because(gang)}"
        case Kind.RAISED:
            return f"gang {gang.label} {_goes_on(gang)}; {_absent(gang)}"
        case Kind.LOST:
            return _lost(gang)
        case Kind.NOT_BOUND:
            return (
                f"gang {gang.label} is starting; {len(gang.seats)} of its pods are not bound yet: {gang.bind.failure}"
            )
        case Kind.MARKED:
            return _marked(gang)
        case _:
            return ""


def _goes_on(gang: Gang) -> str:
    """Describes a gang that has started: whether any of its pods run, and whether they were enough once."""
    running = gang.member_count - len(gang.pending)
    if not running:
        return "started earlier and has no running pods"
    if not gang.below_minimum or gang.facts is None:
        return "runs"
    minimum, met = gang.facts.minimum, gang.raised_from
    since = f", since its minimum was raised from {met} to {minimum}" if met else ""
    return f"runs with {running + len(gang.succeeded)} of {minimum} members{since}"


def _absent(gang: Gang) -> str:
    """Describes the members that a gang lacks whose minimum was raised."""
    assert gang.facts is not None
    missing = gang.facts.minimum - gang.member_count - len(gang.succeeded)
    gated = sum(pod.gated and not pod.deleting for pod in gang.pods.values())
    more = "1 more pod" if missing == 1 else f"{missing} more pods"
    existing = f" ({gated} gated)" if gated else ""
    create = f"create {'it' if missing == 1 else 'them'}, or lower the minimum"
    return f"it needs {more}{existing}: {create}{not_created(gang)}"


def warnings(gang: Gang) -> list[str]:
    """Lists problems of the declaration for which a default is used, or that do not stop a running gang."""
    facts = gang.facts
    if facts is None:
        return []
    notes: list[str] = []
    if facts.problems:
        notes += [problem.message for problem in facts.problems if problem.severity is Severity.WARNING]
    if gang.permit.granted and facts.problems:
        blocking = (problem.message for problem in facts.problems if problem.severity is Severity.BLOCKING)
        notes += [f"{message}; pods that have started keep running" for message in blocking]
    if facts.mode is GangMode.NON_STRICT and not gang.permit.granted and not gang.group.non_strict:
        whole = next(other for other in gang.group.gangs if other.facts and other.facts.starts_whole)
        notes.append(
            f"mode NonStrict has no effect: {_why_whole(whole)}, so all members of the gang group must fit at once"
        )
    return notes


def _why_whole(gang: Gang) -> str:
    facts = gang.facts
    assert facts is not None, f"{gang.id} is placed whole without a declaration"
    if facts.mode is not GangMode.NON_STRICT:
        return f"gang {gang.label} of its gang group is Strict"
    hard = next((each for each in facts.constraints if each.hard), None)
    if hard is None:
        return f"gang {gang.label} has subgroups, or is in a composite"
    return f'gang {gang.label} has the hard constraint "{as_text(hard)}"'


def _holding(gang: Gang) -> str:
    lacking, minimum = max(0, gang.missing), gang.required
    have = f"gang {gang.label} holds reservations for {minimum - lacking} of {minimum} members"
    if gang.group.not_ready is not None:
        return f"{have}: {gang.group.not_ready}"
    return f"{have} and waits for {'the rest' if lacking else 'its gang group'}{_because(gang)}"


def _lost(gang: Gang) -> str:
    because = f": {gang.group.not_ready}" if gang.group.not_ready is not None else _because(gang)
    lost = f"{len(gang.lost)} of {gang.member_count} pods lost their node and must be placed again"
    again = f"gang {gang.label}: {lost}{because}"
    return f"{again}; the last bind failed: {gang.bind.failure}" if gang.bind.failure else again


def _marked(gang: Gang) -> str:
    mark = next(iter(timeout_annotations(gang.id, True)), "of the timeout")
    count = len(gang.hold.marked)
    return f"gang {gang.label} runs; {count} more of its pods timed out; remove the annotation {mark} from them"


def _because(gang: Gang) -> str:
    group = gang.group
    if group.queueing.failure:
        return f": {group.queueing.failure}"
    explanation = group.solve.explanation
    if explanation is None:
        return ""
    other = f"gang {_label(explanation.gang)}: " if explanation.gang not in ("", gang.id) else ""
    return f": {'; '.join((f'{other}{explanation.summary}', *group.verdicts.sentences.values()))}"


def _label(gang_id: str) -> str:
    return gang_id.split("/", 1)[-1]


def in_units(resource: str, amount: int) -> str:
    """Formats an amount: cores for cpu, MiB for memory and the like, the number for anything else."""
    if resource == "cpu":
        return f"{amount / 1000:g}"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        return f"{-(-amount // 2**20)} MiB"
    return str(amount)


_MAX_REQUIREMENTS_CHARACTERS = 128


def name_unplaced_pod(
    explanation: Explanation, gangs: Mapping[str, Gang], classes: Mapping[str, PodClass]
) -> Explanation:
    """Adds the name of a pod that did not fit to the explanation, if the gang's name is not enough: when its members
    differ, or require certain nodes.
    """
    gang, pod_class = gangs.get(explanation.gang), classes.get(explanation.class_id)
    if gang is None or pod_class is None:
        return explanation
    pods = [pod for pod in gang.pending.values() if pod.class_id == pod_class.id]
    requirements = _node_requirements(pod_class)
    if not pods or (not requirements and len(pods) == len(gang.pending)):
        return explanation
    first = min(pods, key=lambda pod: (len(pod.name), pod.name))
    others = f" and {len(pods) - 1} equal ones" if len(pods) > 1 else ""
    requires = f" requiring nodes with {requirements}" if requirements else ""
    return replace(explanation, summary=f"{explanation.summary} (pod {first.name}{others}{requires})")


def _node_requirements(pod_class: PodClass) -> str:
    parts = [f"{key}={value}" for key, value in pod_class.node_selector]
    if pod_class.required_node_affinity:
        parts.append(" or ".join(_term(term) for term in pod_class.required_node_affinity))
    text = ", ".join(parts)
    return text if len(text) <= _MAX_REQUIREMENTS_CHARACTERS else text[: _MAX_REQUIREMENTS_CHARACTERS - 1] + "…"


def _term(term: NodeSelectorTerm) -> str:
    return " and ".join(_requirement(requirement) for requirement in (*term.labels, *term.fields))


def _requirement(requirement: NodeRequirement) -> str:
    operator = requirement.operator.name.lower().replace("_", " ")
    return f"{requirement.key} {operator} {' '.join(requirement.values)}".rstrip()
