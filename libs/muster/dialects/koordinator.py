"""Koordinator: annotations on pods, and PodGroup scheduling.sigs.k8s.io/v1alpha1 with the same optional annotations.

A pod is a member by the label pod-group.scheduling.sigs.k8s.io or the annotation .../name; if it has both and they
differ, the label counts, as in Koordinator.

Every value is looked for on the pods, then in the annotations of the PodGroup, then in its spec. The first found
counts, with a Warning where another differs. An optional annotation that is empty counts as absent.

A gang is always part of the group that it declares: a list that leaves it out is taken as if it were in it, with a
Warning. A list of the gang alone or of none means that it stands alone.

The annotation .../timeout is the scheduler's: "true" on every pod of a gang that waited longer than it may. Such a pod
stays a member, but is not tried until the annotation goes.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from muster.dialects.declared import (
    Reading,
    Source,
    blocking,
    chosen,
    definition_terms,
    facts,
    from_pods,
    member_of,
    oldest_first,
    pod_terms,
    unless_empty,
    warning,
)
from muster.dialects.marks import (
    NO_PRIORITIES,
    Annotations,
    Definition,
    DefinitionKind,
    GangMarks,
    MarkSet,
    Membership,
    Transition,
)
from muster.dialects.match_policy import MATCH_POLICY_ALIAS, read_match_policy
from muster.dialects.network_topology import gathering
from muster.dialects.values import (
    MOST_GANGS_IN_A_GROUP,
    BadValue,
    GangName,
    count,
    duration_seconds,
    gang_group,
    seconds,
    shown,
)
from muster.gangs.facts import GangFacts, GangMode, LevelConstraint, MatchPolicy, Problem
from muster.gangs.quoting import quoted

NAME: Final = "koordinator"
DEFINITION: Final = DefinitionKind("scheduling.sigs.k8s.io", "v1alpha1", "PodGroup", "podgroups")

POD_GROUP_LABEL: Final = "pod-group.scheduling.sigs.k8s.io"
_PREFIX: Final = "gang.scheduling.koordinator.sh/"
GANG_NAME: Final = _PREFIX + "name"
MIN_AVAILABLE: Final = _PREFIX + "min-available"
TOTAL_NUMBER: Final = _PREFIX + "total-number"
MODE: Final = _PREFIX + "mode"
WAITING_TIME: Final = _PREFIX + "waiting-time"
GROUPS: Final = _PREFIX + "groups"
MATCH_POLICY: Final = _PREFIX + "match-policy"
TIMEOUT: Final = _PREFIX + "timeout"
NETWORK_TOPOLOGY: Final = _PREFIX + "network-topology-spec"

MATCH_POLICIES: Final = (MATCH_POLICY, MATCH_POLICY_ALIAS)

LABELS: Final = frozenset({POD_GROUP_LABEL})
ANNOTATIONS: Final = frozenset(
    {GANG_NAME, MIN_AVAILABLE, TOTAL_NUMBER, MODE, WAITING_TIME, GROUPS, *MATCH_POLICIES, TIMEOUT, NETWORK_TOPOLOGY}
)
_TERMS: Final = (MIN_AVAILABLE, TOTAL_NUMBER, MODE, WAITING_TIME, GROUPS, *MATCH_POLICIES, NETWORK_TOPOLOGY)
_FIELDS: Final = ("minMember", "scheduleTimeoutSeconds")

DEFAULT_WAITING_SECONDS: Final = 600.0
"""Koordinator's default."""

_TIMED_OUT: Final = "true"
_MODES: Final = {"Strict": GangMode.STRICT, "NonStrict": GangMode.NON_STRICT}


def membership(marks: GangMarks) -> Membership | None:
    """The gang that a pod's label or annotation names; None if it has neither."""
    label, annotation = marks.label(POD_GROUP_LABEL), marks.annotation(GANG_NAME)
    if label is None and annotation is None:
        return None
    what, name = (f"label {POD_GROUP_LABEL}", label) if label else (f"annotation {GANG_NAME}", annotation)
    if name is None:
        what, name = f"label {POD_GROUP_LABEL}", ""
    return member_of(NAME, marks.namespace, name, what, timed_out=marks.annotation(TIMEOUT) == _TIMED_OUT)


def read(
    namespace: str,
    name: str,
    definition: Definition | None,
    mark_sets: Iterable[MarkSet],
    priorities: Mapping[str, int] = NO_PRIORITIES,
) -> GangFacts:
    """What pods and PodGroup declare of a gang, in one form."""
    gang = _Declaration(namespace, name, definition, oldest_first(mark_sets))
    minimum = gang.minimum()
    total = gang.total(minimum)
    mode = gang.mode()
    waiting_seconds = gang.waiting_seconds()
    group = gang.group()
    policy = gang.match_policy()
    constraints = gang.constraints()
    gang.check_names()
    gang.check_timeouts()
    return replace(
        facts(NAME, namespace, name, definition, gang.pods),
        minimum=minimum,
        total=total,
        mode=mode,
        group=group,
        waiting_time_seconds=waiting_seconds,
        problems=tuple(gang.problems),
        match_policy=policy,
        constraints=constraints,
        terms=(
            *pod_terms(gang.pods, GangMarks.annotation, _TERMS),
            *definition_terms(definition, _FIELDS, _TERMS),
        ),
    )


def write(transition: Transition) -> Annotations:
    """Annotations that the gang's pods get when this happens to it."""
    match transition:
        case Transition.TIMED_OUT:
            return {TIMEOUT: _TIMED_OUT}
        case Transition.TRIED_ANEW:
            return {TIMEOUT: None}


class _Declaration:
    """All that was declared of one gang, and what is wrong with it so far."""

    def __init__(self, namespace: str, name: str, definition: Definition | None, pods: list[MarkSet]) -> None:
        self.namespace = namespace
        self.name = name
        self.definition = definition
        self.pods = pods
        self.problems: list[Problem] = []
        self._pod_group = f"PodGroup {quoted(f'{namespace}/{name}')}"

    def minimum(self) -> int:
        sources = self._of_pods(GangMarks.annotation, MIN_AVAILABLE)
        if self.definition is not None:
            sources.append(Source(self.definition.spec.get("minMember"), f"spec.minMember of {self._pod_group}"))
        if not sources:
            self.problems.append(
                blocking(
                    f"{self._pod_group} ({DEFINITION.api_version}) does not exist yet and no pod of the gang has the "
                    f"annotation {MIN_AVAILABLE}: create the one, or set the other to the number of pods that must "
                    "start together"
                )
            )
        remedy = "set it to the number of pods that must start together"
        return chosen(sources, count, 0, self.problems, blocking, remedy)

    def total(self, minimum: int) -> int:
        total = chosen(
            self._optional(TOTAL_NUMBER), count, 0, self.problems, warning, "the minimum counts as the total instead"
        )
        if 0 < total < minimum:
            self.problems.append(
                warning(
                    f"annotation {TOTAL_NUMBER} is {total}, below the minimum: {minimum}, the minimum, counts instead"
                )
            )
        return max(total, minimum) if minimum else 0

    def mode(self) -> GangMode:
        return chosen(self._optional(MODE), _mode, GangMode.STRICT, self.problems, warning, "Strict counts instead")

    def waiting_seconds(self) -> float:
        sources = self._optional(WAITING_TIME)
        timeout = self.definition.spec.get("scheduleTimeoutSeconds") if self.definition else None
        if timeout:
            sources.append(Source(timeout, f"spec.scheduleTimeoutSeconds of {self._pod_group}"))
        default = DEFAULT_WAITING_SECONDS
        return chosen(sources, _waiting_seconds, default, self.problems, warning, f"{default:g}s counts instead")

    def group(self) -> tuple[str, ...]:
        own = (self.namespace, self.name)
        remedy = 'list every gang of the group as "namespace/name", this one too'
        none: tuple[GangName, ...] = ()
        gangs = chosen(self._optional(GROUPS), self._group, none, self.problems, blocking, remedy)
        if gangs and own not in gangs:
            self.problems.append(
                warning(
                    f"annotation {GROUPS} leaves out {quoted('/'.join(own))}, the gang itself; it is taken as listed"
                )
            )
            gangs = tuple(sorted({*gangs, own}))
        return () if gangs == (own,) else tuple(sorted(f"{NAME}/{namespace}/{name}" for namespace, name in gangs))

    def match_policy(self) -> MatchPolicy:
        sources = [source for annotation in MATCH_POLICIES for source in self._optional(annotation)]
        return read_match_policy(sources, self.problems)

    def constraints(self) -> tuple[LevelConstraint, ...]:
        remedy = "correct it, and the gang can start"
        nothing: tuple[LevelConstraint, ...] = ()
        return chosen(self._optional(NETWORK_TOPOLOGY), gathering, nothing, self.problems, blocking, remedy)

    def check_names(self) -> None:
        for each in self.pods:
            label, annotation = each.marks.label(POD_GROUP_LABEL), each.marks.annotation(GANG_NAME)
            if label and annotation and label != annotation:
                self.problems.append(
                    warning(
                        f"pod {quoted(each.oldest.name)} has annotation {GANG_NAME} {quoted(annotation)}, but label "
                        f"{POD_GROUP_LABEL} {quoted(label)}: the label counts"
                    )
                )
                return

    def check_timeouts(self) -> None:
        for each in self.pods:
            timeout = each.marks.annotation(TIMEOUT)
            if timeout and timeout not in (_TIMED_OUT, "false"):
                where = f"annotation {TIMEOUT} of pod {quoted(each.oldest.name)}"
                problem = f"{quoted(timeout)}, which is neither true nor false"
                self.problems.append(warning(f"{where} is {problem}: the pod counts as not timed out"))
                return

    def _group(self, text: Any) -> tuple[GangName, ...]:
        gangs = gang_group(text)
        if len({*gangs, (self.namespace, self.name)}) > MOST_GANGS_IN_A_GROUP:
            raise BadValue(f"a list of {len(gangs)} gangs, but a group has at most {MOST_GANGS_IN_A_GROUP}")
        return gangs

    def _optional(self, annotation: str) -> list[Source]:
        sources = self._of_pods(unless_empty, annotation)
        if self.definition is not None and (value := self.definition.annotations.get(annotation)):
            sources.append(Source(value, f"annotation {annotation} of {self._pod_group}"))
        return sources

    def _of_pods(self, read: Reading, annotation: str) -> list[Source]:
        sources, differences = from_pods(self.pods, read, annotation, f"annotation {annotation}")
        self.problems += differences
        return sources


def _mode(text: Any) -> GangMode:
    mode = _MODES.get(text)
    if mode is None:
        raise BadValue(f"{shown(text)}, which is neither Strict nor NonStrict")
    return mode


def _waiting_seconds(value: Any) -> float:
    return duration_seconds(value) if isinstance(value, str) else seconds(value)
