"""Koordinator: annotations on pods, and PodGroup scheduling.sigs.k8s.io/v1alpha1 with the same optional annotations.

A pod is a member by the label pod-group.scheduling.sigs.k8s.io or the annotation .../name. If it has both and they
differ, the label takes precedence, as in Koordinator.

Every value is looked up on the pods, then in the annotations of the PodGroup, then in its spec. The first value found
is used, with a Warning where another differs. An optional annotation that is empty counts as absent.

A gang is always part of the group that it declares: a list without it is read as if it contained it, with a Warning.
A list of the gang alone, or an empty list, means no group.

The scheduler writes the annotation .../timeout: "true" on every pod of a gang that exceeded its waiting time. Such a
pod stays a member, but the gang is not tried until the annotation is removed.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from muster.dialects.definitions import DefinitionKind
from muster.dialects.dialect import Declaration, Dialect, PodMarks
from muster.dialects.marks import Annotations, GangMarks, MarkSet, Membership, Pairs
from muster.dialects.match_policy import MATCH_POLICY_ALIAS, read_match_policy
from muster.dialects.network_topology import parse_network_topology, unknown_keys
from muster.dialects.sources import (
    MarkReader,
    Source,
    annotation_unless_empty,
    blocking,
    choose,
    definition_terms,
    from_pods,
    gang_facts,
    member_of,
    min_resources,
    pod_terms,
    undeclared,
    unknown_fields,
    warning,
)
from muster.dialects.values import (
    MAX_GANGS_IN_A_GROUP,
    MAX_INDEX_DIGITS,
    BadValue,
    GangName,
    parse_count,
    parse_duration_seconds,
    parse_gang_group,
    parse_index,
    parse_seconds,
    quoted_value,
)
from muster.gangs.facts import Amounts, GangFacts, GangMode, LevelConstraint, MatchPolicy, Problem
from muster.gangs.quoting import quoted
from muster.topology.constraints import clashes

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
TOPOLOGY_INDEX: Final = _PREFIX + "network-topology-index"

MATCH_POLICIES: Final = (MATCH_POLICY, MATCH_POLICY_ALIAS)

_TERMS: Final = (MIN_AVAILABLE, TOTAL_NUMBER, MODE, WAITING_TIME, GROUPS, *MATCH_POLICIES, NETWORK_TOPOLOGY)
_FIELDS: Final = ("minMember", "minResources", "scheduleTimeoutSeconds")

DEFAULT_WAITING_SECONDS: Final = 600.0
"""Koordinator's default."""

_MOST_NAMED: Final = 5
_TIMED_OUT: Final = "true"
_MODES: Final = {"Strict": GangMode.STRICT, "NonStrict": GangMode.NON_STRICT}


def membership(marks: GangMarks) -> Membership | None:
    """Returns the gang that a pod's label or annotation names; None if it has neither."""
    label, annotation = marks.label(POD_GROUP_LABEL), marks.annotation(GANG_NAME)
    if label is None and annotation is None:
        return None
    where, name = (f"label {POD_GROUP_LABEL}", label) if label else (f"annotation {GANG_NAME}", annotation)
    if name is None:
        where, name = f"label {POD_GROUP_LABEL}", ""
    return member_of(NAME, marks.namespace, name, where, timed_out=marks.annotation(TIMEOUT) == _TIMED_OUT)


def read(declaration: Declaration) -> GangFacts:
    """Reads the pods and the PodGroup of a gang."""
    gang = _Reader(declaration)
    minimum = gang.minimum()
    total = gang.total(minimum)
    mode = gang.mode()
    waiting_seconds = gang.waiting_seconds()
    group = gang.group()
    policy = gang.match_policy()
    constraints = gang.constraints()
    resources = gang.resources()
    gang.check_names()
    gang.check_timeouts()
    gang.check_indexes()
    return replace(
        gang_facts(NAME, declaration),
        minimum=minimum,
        total=total,
        mode=mode,
        group=group,
        waiting_time_seconds=waiting_seconds,
        problems=tuple(gang.problems),
        match_policy=policy,
        resources=resources,
        constraints=constraints,
        terms=(
            *pod_terms(declaration.pods, GangMarks.annotation, _TERMS),
            *definition_terms(declaration.definition, _FIELDS, _TERMS),
        ),
    )


def timeout_annotations(timed_out: bool) -> Annotations:
    """Returns the annotations for the pods of a gang that timed out, or may be tried again."""
    return {TIMEOUT: _TIMED_OUT if timed_out else None}


def wanted_rank(annotations: Mapping[str, str], _labels: Mapping[str, str]) -> int:
    """Returns the index of a pod within its gang; -1 if it has none, or an invalid one."""
    return parse_index(annotations.get(TOPOLOGY_INDEX))


def without_valid_index(marks: Pairs) -> Pairs:
    """Returns the marks without a valid index, which differs from pod to pod; an invalid one stays, to be reported."""
    return tuple([(key, value) for key, value in marks if key != TOPOLOGY_INDEX or (value and parse_index(value) < 0)])


class _Reader:
    """Reads one declaration value by value and collects the problems in it."""

    def __init__(self, declaration: Declaration) -> None:
        self.problems: list[Problem] = []
        self._gang = (declaration.namespace, declaration.name)
        self._definition = declaration.definition
        self._pods: Sequence[MarkSet] = declaration.pods
        self._pod_group = f"PodGroup {quoted('/'.join(self._gang))}"

    def minimum(self) -> int:
        sources = self._of_pods(GangMarks.annotation, MIN_AVAILABLE)
        if self._definition is not None:
            sources.append(Source(self._definition.spec.get("minMember"), f"spec.minMember of {self._pod_group}"))
        if not sources:
            self.problems.append(
                undeclared(
                    f"{self._pod_group} ({DEFINITION.api_version}) does not exist yet and no pod of the gang has the "
                    f"annotation {MIN_AVAILABLE}: create the one, or set the other to the number of pods that must "
                    "start together"
                )
            )
        remedy = "set it to the number of pods that must start together"
        return choose(sources, parse_count, 0, self.problems, blocking, remedy)

    def total(self, minimum: int) -> int:
        total = choose(
            self._optional(TOTAL_NUMBER), parse_count, 0, self.problems, warning, "the minimum is used instead"
        )
        if 0 < total < minimum:
            self.problems.append(
                warning(
                    f"annotation {TOTAL_NUMBER} is {total}, below the minimum: {minimum}, the minimum, is used instead"
                )
            )
        return max(total, minimum) if minimum else 0

    def mode(self) -> GangMode:
        return choose(self._optional(MODE), _mode, GangMode.STRICT, self.problems, warning, "Strict is used instead")

    def waiting_seconds(self) -> float:
        sources = self._optional(WAITING_TIME)
        timeout = self._definition.spec.get("scheduleTimeoutSeconds") if self._definition else None
        if timeout:
            sources.append(Source(timeout, f"spec.scheduleTimeoutSeconds of {self._pod_group}"))
        default = DEFAULT_WAITING_SECONDS
        return choose(sources, _waiting_seconds, default, self.problems, warning, f"{default:g}s is used instead")

    def resources(self) -> Amounts:
        """Returns the amounts that must be free before the gang is tried; also reports unknown fields of the spec."""
        if self._definition is None:
            return ()
        self.problems += unknown_fields(self._definition.spec, _FIELDS, f"spec of {self._pod_group}")
        return min_resources(self._definition, self.problems)

    def group(self) -> tuple[str, ...]:
        remedy = 'list every gang of the group as "namespace/name", including this one'
        none: tuple[GangName, ...] = ()
        gangs = choose(self._optional(GROUPS), self._parse_group, none, self.problems, blocking, remedy)
        if gangs and self._gang not in gangs:
            self.problems.append(
                warning(
                    f"annotation {GROUPS} leaves out {quoted('/'.join(self._gang))}, the gang itself, which is always "
                    "part of its group"
                )
            )
            gangs = tuple(sorted({*gangs, self._gang}))
        if gangs == (self._gang,):
            return ()
        return tuple(sorted(f"{NAME}/{namespace}/{name}" for namespace, name in gangs))

    def match_policy(self) -> MatchPolicy:
        sources = [source for annotation in MATCH_POLICIES for source in self._optional(annotation)]
        return read_match_policy(sources, self.problems)

    def constraints(self) -> tuple[LevelConstraint, ...]:
        remedy = "correct it, and the gang can start"
        nothing: tuple[LevelConstraint, ...] = ()
        sources = self._optional(NETWORK_TOPOLOGY)
        if sources and (unknown := unknown_keys(sources[0].value)):
            keys = ", ".join(map(quoted, unknown[:_MOST_NAMED]))
            self.problems.append(warning(f"{sources[0].where} has {keys}, which Muster does not know and ignores"))
        constraints = choose(sources, parse_network_topology, nothing, self.problems, blocking, remedy)
        self.problems += [blocking(f"{sources[0].where}: {clash}") for clash in clashes(constraints)]
        return constraints

    def check_names(self) -> None:
        for each in self._pods:
            label, annotation = each.marks.label(POD_GROUP_LABEL), each.marks.annotation(GANG_NAME)
            if label and annotation and label != annotation:
                self.problems.append(
                    warning(
                        f"pod {quoted(each.oldest.name)} has annotation {GANG_NAME} {quoted(annotation)}, but label "
                        f"{POD_GROUP_LABEL} {quoted(label)}: the label is used"
                    )
                )
                return

    def check_timeouts(self) -> None:
        for each in self._pods:
            timeout = each.marks.annotation(TIMEOUT)
            if timeout and timeout not in (_TIMED_OUT, "false"):
                where = f"annotation {TIMEOUT} of pod {quoted(each.oldest.name)}"
                problem = f"{quoted(timeout)}, which is neither true nor false"
                self.problems.append(warning(f"{where} is {problem}: the pod is treated as not timed out"))
                return

    def check_indexes(self) -> None:
        for each in self._pods:
            if index := each.marks.annotation(TOPOLOGY_INDEX):
                where = f"annotation {TOPOLOGY_INDEX} of pod {quoted(each.oldest.name)}"
                problem = f"{quoted(index)}, which is not a whole number of up to {MAX_INDEX_DIGITS} digits"
                self.problems.append(warning(f"{where} is {problem}: the pod's rank follows from its place"))
                return

    def _parse_group(self, text: Any) -> tuple[GangName, ...]:
        gangs = parse_gang_group(text)
        if len({*gangs, self._gang}) > MAX_GANGS_IN_A_GROUP:
            raise BadValue(f"a list of {len(gangs)} gangs, but a group has at most {MAX_GANGS_IN_A_GROUP}")
        return gangs

    def _optional(self, annotation: str) -> list[Source]:
        sources = self._of_pods(annotation_unless_empty, annotation)
        if self._definition is not None and (value := self._definition.annotations.get(annotation)):
            sources.append(Source(value, f"annotation {annotation} of {self._pod_group}"))
        return sources

    def _of_pods(self, read: MarkReader, annotation: str) -> list[Source]:
        sources, differences = from_pods(self._pods, read, annotation, f"annotation {annotation}")
        self.problems += differences
        return sources


def _mode(text: Any) -> GangMode:
    mode = _MODES.get(text)
    if mode is None:
        raise BadValue(f"{quoted_value(text)}, which is neither Strict nor NonStrict")
    return mode


def _waiting_seconds(value: Any) -> float:
    return parse_duration_seconds(value) if isinstance(value, str) else parse_seconds(value)


DIALECT: Final = Dialect(
    name=NAME,
    marks=PodMarks(
        labels=frozenset({POD_GROUP_LABEL}),
        annotations=frozenset({GANG_NAME, TIMEOUT, TOPOLOGY_INDEX, *_TERMS}),
        naming=f"annotation {GANG_NAME} or label {POD_GROUP_LABEL}",
    ),
    membership=membership,
    read=read,
    definition=DEFINITION,
    timeout_annotations=timeout_annotations,
    wanted_rank=wanted_rank,
)
