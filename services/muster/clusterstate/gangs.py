"""Gangs, derived from pods and definitions; recomputed only if a relevant property has changed.

A gang exists as long as it has a definition or any pod of ours, including pods that ended or are being deleted: a pod
that the user's controller recreates must find its gang. A definition without a pod of ours is no gang if pods of other
schedulers have its marks, or if its dialect says so. Its facts follow from its live pods; if there are none, from
those that ended; if there are none either, from those that are being deleted.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import nsmallest
from itertools import islice
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from muster.clusterstate.foreign_pods import ForeignPods
from muster.clusterstate.gang_incarnation import NO_CONTROLLER, Incarnation, Member, MemberState
from muster.clusterstate.incomplete_gangs import IncompleteGangs, ReportedFailure, failure_to_report
from muster.dialects import registry
from muster.dialects.composite_groups import CompositeGroups
from muster.dialects.composites import PARENT
from muster.dialects.definitions import Definition
from muster.dialects.marks import MAX_DECLARATIONS, NO_PRIORITIES, GangMarks, MarkSet, PodAge
from muster.gangs.facts import GangFacts, Problem, Severity
from muster.kube.creation_failures import CreationFailure
from muster.kube.malformed_objects import MalformedObjects, Reason, Unreadable

_MALFORMED: Final = MalformedObjects("gangs")

_WEIGHT: Final = 100
_WEIGHT_OF_VALUE: Final = 10
_WEIGHT_OF_DECLARATION: Final = 5
_CHARACTERS: Final = 4
"""Microseconds, about, to read a gang: at least, for each value of its definitions, and for each declaration of pods;
and the characters of annotations, which may be lists, that take one.
"""

MAX_RIVALS: Final = 10
"""Ignored definitions of a gang that are named."""


class Gangs:
    """Facts by gang id. Entries end with the last pod and definition of the gang; those of `_unsettled` and `_weights`
    are taken after each batch (I11).
    """

    def __init__(self, composites: CompositeGroups) -> None:
        self.facts: dict[str, GangFacts] = {}
        self._composites = composites
        self._gangs: dict[str, _Gang] = {}
        self._of_pod: dict[str, str] = {}
        self._of_definition: dict[str, str] = {}
        self._unsettled: dict[str, dict[str, int]] = {}
        self._weights: dict[str, int] = {}  # of unsettled gangs
        self.unsettled_weight = 0
        """Microseconds, about, that it takes to compute the facts of all gangs that have changed."""
        self.foreign = ForeignPods()
        self.incomplete = IncompleteGangs()
        self._priorities: Mapping[str, int] = NO_PRIORITIES

    def put_pod(
        self, gang_id: str, member: Member, marks: GangMarks, kind: str, revision: int, *, decide: bool
    ) -> GangMarks:
        """Add or update a member of a gang; returns its marks, as the members share them. `decide`: events arrive in
        the order of their revisions.
        """
        uid = member.age.uid
        if self._of_pod.get(uid, gang_id) != gang_id:
            self.drop_pod(uid, kind, revision, decide=decide)
        self._of_pod[uid] = gang_id
        gang = self._gang(gang_id)
        if gang.put(uid, member, marks):
            self._touch(gang_id, kind, revision)
            if decide:
                gang.decide()
        return gang.marks_of(uid)

    def drop_pod(self, uid: str, kind: str, revision: int, *, decide: bool) -> None:
        """A pod was removed, or is not a member of any gang."""
        gang_id = self._of_pod.pop(uid, None)
        if gang_id is not None:
            gang = self._gangs[gang_id]
            gang.drop(uid)
            self._touch(gang_id, kind, revision)
            if decide:
                gang.decide()

    def put_foreign_pod(
        self, gang_id: str, age: PodAge, scheduler: str, kind: str, revision: int, *, live: bool
    ) -> None:
        """Add or update a pod with the marks of a gang that another scheduler places."""
        self._touch_known(self.foreign.put(gang_id, age, scheduler, live=live), kind, revision)

    def drop_foreign_pod(self, uid: str, kind: str, revision: int) -> None:
        """A pod that another scheduler places has no marks of a gang, or was removed."""
        self._touch_known(self.foreign.drop(uid), kind, revision)

    def put_definition(self, gang_id: str, definition: Definition, kind: str, revision: int) -> None:
        """Add or update an object that defines a gang."""
        if self._of_definition.get(definition.uid, gang_id) != gang_id:
            self.drop_definition(definition.uid, kind, revision)
        gang = self._gang(gang_id)
        self._of_definition[definition.uid] = gang_id
        key = definition.api_version.rpartition("/")[0], definition.name
        if gang.definitions.get(key) != definition:
            gang.define(key, definition)
            self._touch(gang_id, kind, revision)

    def drop_definition(self, uid: str, kind: str, revision: int) -> None:
        """An object was removed or does not define a gang any more; another one may have its name by now."""
        gang_id = self._of_definition.pop(uid, None)
        gang = self._gangs.get(gang_id) if gang_id is not None else None
        if gang_id is not None and gang is not None and gang.undefine(uid):
            self._touch(gang_id, kind, revision)

    def reprioritise(self, priorities: Mapping[str, int]) -> list[str]:
        """Priority classes changed; `priorities`: their values by name. Returns the gangs that may depend on them."""
        if priorities == self._priorities:
            return []
        self._priorities = priorities
        return [gang_id for gang_id, gang in self._gangs.items() if gang.definitions]

    def touch(self, gang_id: str, causes: Mapping[str, int]) -> bool:
        """The facts of a gang may change because of these revisions by kind. Returns False: not at once."""
        if gang_id in self._gangs:
            for kind, revision in causes.items():
                self._touch(gang_id, kind, revision)
        return False

    def controllers_of(self, gang_id: str) -> set[str]:
        """Uids of the controllers of a gang's pods and definitions."""
        gang = self._gangs.get(gang_id)
        return gang.controllers if gang is not None else set()

    def has_unknown_controller(self, gang_id: str) -> bool:
        """Nothing tells which controller creates the pods of the gang: none exists, and its definitions have none."""
        gang = self._gangs.get(gang_id)
        return gang is not None and not gang.has_pods and not gang.controllers

    def note_creation_failures(self, gang_id: str, failures: Collection[CreationFailure]) -> None:
        """All failures to create pods that events report of the controllers of a gang."""
        gang = self._gangs.get(gang_id)
        if gang is not None and gang.note_failures(failures):
            self._unsettle(gang_id)

    @property
    def unsettled(self) -> int:
        """Number of gangs that have changed since their facts were computed."""
        return len(self._unsettled)

    def settle(self, most: int | None = None) -> tuple[list[GangFacts], list[str], dict[str, int]]:
        """Changed facts, ids of removed gangs, and the revisions by kind of the changes that caused both; of so many
        gangs that have changed, or of all.
        """
        changed: list[GangFacts] = []
        removed: list[str] = []
        revisions: dict[str, int] = {}
        settled = dict(islice(self._unsettled.items(), most))
        for gang_id, since in settled.items():
            gang = self._gangs[gang_id]
            before = self.facts.get(gang_id)
            try:
                after = gang.read(gang_id, before, self._priorities, self.foreign, self._composites)
            except Exception as error:  # one declaration must not block all other gangs
                after = _unread(gang_id, before, error)
            lacks = after is not None and gang.lacks_members(after.minimum)
            self.incomplete.note(gang_id, lacks=lacks)
            failure = gang.keep_failure(lacks=lacks)
            if after is not None and after.creation_failure != failure:
                after = replace(after, creation_failure=failure)
            if after == before:
                continue
            if after is None:
                del self.facts[gang_id]
                removed.append(gang_id)
            else:
                self.facts[gang_id] = after
                changed.append(after)
            for kind, revision in since.items():
                revisions[kind] = max(revision, revisions.get(kind, 0))
        for gang_id in settled:
            if not self._gangs[gang_id].exists:
                del self._gangs[gang_id]
            del self._unsettled[gang_id]
            self.unsettled_weight -= self._weights.pop(gang_id)
        return changed, removed, revisions

    def _gang(self, gang_id: str) -> "_Gang":
        gang = self._gangs.get(gang_id)
        if gang is None:
            gang = self._gangs[gang_id] = _Gang()
        return gang

    def _touch_known(self, gang_ids: Iterable[str], kind: str, revision: int) -> None:
        for gang_id in gang_ids:
            if gang_id in self._gangs:
                self._touch(gang_id, kind, revision)

    def _touch(self, gang_id: str, kind: str, revision: int) -> None:
        since = self._unsettle(gang_id)
        since[kind] = max(revision, since.get(kind, 0))

    def _unsettle(self, gang_id: str) -> dict[str, int]:
        """The facts of a gang may change; returns the revisions by kind because of which."""
        weight = self._gangs[gang_id].weight
        self.unsettled_weight += weight - self._weights.get(gang_id, 0)
        self._weights[gang_id] = weight
        return self._unsettled.setdefault(gang_id, {})


class _MemberSet:
    """Pods of one gang with the same marks and state, oldest first."""

    __slots__ = ("ages", "marks")

    def __init__(self, marks: GangMarks) -> None:
        self.marks = marks
        self.ages: list[PodAge] = []


class _Entry(Struct, frozen=True, gc=False):
    """A pod, and the set that it is in."""

    member_set: _MemberSet
    member: Member


class _Gang:
    """Pods and definitions (by API group and name) of one gang. Of several definitions the oldest one applies.

    Definitions end with their object, pods and sets of them with the pods; the failure to create pods ends when no
    member is missing, or its controller has created one since (I11).
    """

    def __init__(self) -> None:
        self.definitions: dict[tuple[str, str], Definition] = {}
        self._incarnation = Incarnation()
        self._pods: dict[str, _Entry] = {}
        self._sets: dict[MemberState, dict[GangMarks, _MemberSet]] = {}
        self._ages: dict[MemberState, list[PodAge]] = {}
        """Pods by state, oldest first: each may have marks and a controller of its own."""
        self._read: tuple[object, ...] = ()
        self._weight = 0  # of all definitions
        self._succeeded = 0
        self._failure: ReportedFailure | None = None

    @property
    def weight(self) -> int:
        """Microseconds, about, that it takes to read the gang."""
        declarations = sum(min(len(sets), MAX_DECLARATIONS) for sets in self._sets.values())
        return _WEIGHT + self._weight + _WEIGHT_OF_DECLARATION * declarations

    @property
    def exists(self) -> bool:
        return bool(self.definitions or self._pods)

    @property
    def has_pods(self) -> bool:
        return bool(self._pods)

    def put(self, uid: str, member: Member, marks: GangMarks) -> bool:
        """Returns False if nothing relevant has changed."""
        known = self._pods.get(uid)
        if known is None:
            self._incarnation.change(None, member)
        else:
            if known.member == member and known.member_set.marks == marks:
                return False
            self._leave(known)
            self._incarnation.change(known.member, member)
        sets = self._sets.setdefault(member.state, {})
        member_set = sets.get(marks)
        if member_set is None:
            member_set = sets[marks] = _MemberSet(marks)
        insort(member_set.ages, member.age)
        insort(self._ages.setdefault(member.state, []), member.age)
        self._succeeded += member.succeeded
        self._pods[uid] = _Entry(member_set, member)
        return True

    def marks_of(self, uid: str) -> GangMarks:
        """The marks of a pod: one object for all pods with equal ones."""
        return self._pods[uid].member_set.marks

    def drop(self, uid: str) -> None:
        known = self._pods.pop(uid)
        self._leave(known)
        if self._pods:
            self._incarnation.change(known.member, None)
        else:
            self._incarnation = Incarnation()

    def define(self, key: tuple[str, str], definition: Definition) -> None:
        """Add or replace a definition."""
        if (known := self.definitions.get(key)) is not None:
            self._weight -= _weight(known)
        self.definitions[key] = definition
        self._weight += _weight(definition)

    def undefine(self, uid: str) -> bool:
        """Returns False if another object has the name by now."""
        removed = [key for key, definition in self.definitions.items() if definition.uid == uid]
        for key in removed:
            self._weight -= _weight(self.definitions.pop(key))
        return bool(removed)

    def lacks_members(self, minimum: int) -> bool:
        """More pods must be created; a gang whose pods have all ended, or are being deleted, is about to end itself."""
        live = len(self._ages.get(MemberState.LIVE, ()))
        return live + self._succeeded < minimum and (live > 0 or not self._pods)

    @property
    def controllers(self) -> set[str]:
        """Uids of the controllers of its pods and definitions."""
        defining = {each.controller.uid for each in self.definitions.values() if each.controller is not None}
        return defining.union(self._incarnation.controllers) - {NO_CONTROLLER}

    def note_failures(self, failures: Iterable[CreationFailure]) -> bool:
        """Failures of its controllers to create pods. Returns whether another one, or none, is to be reported now."""
        before = self._failure
        self._failure = failure_to_report(before, [each for each in failures if not self._is_outdated(each)])
        return (before.text if before is not None else "") != (self._failure.text if self._failure is not None else "")

    def keep_failure(self, *, lacks: bool) -> str:
        """Drop the failure unless the gang `lacks` members because of it; returns its text."""
        failure = self._failure
        if failure is not None and (not lacks or self._is_outdated(failure.last)):
            self._failure = failure = None
        return failure.text if failure is not None else ""

    def _is_outdated(self, failure: CreationFailure) -> bool:
        """The controller has created a pod since."""
        for ages in self._ages.values():
            for age in reversed(ages):
                if age.created_seconds <= failure.seen_seconds:
                    break
                if self._pods[age.uid].member.controller == failure.controller:
                    return True
        return False

    def decide(self) -> None:
        self._incarnation.decide(self._oldest_members())

    def _oldest_members(self) -> Iterator[Member]:
        """The oldest pod in each state."""
        for ages in self._ages.values():
            yield self._pods[ages[0].uid].member

    def read(
        self,
        gang_id: str,
        before: GangFacts | None,
        priorities: Mapping[str, int],
        others: ForeignPods,
        composites: CompositeGroups,
    ) -> GangFacts | None:
        """The gang's facts, or None if there is no such gang. `before`: the facts that were read last; `others`: pods
        of other schedulers.
        """
        if not self.exists:
            return None
        self.decide()
        definitions = sorted(self.definitions.values(), key=_age)
        definition, rivals = (definitions[0], definitions[1 : MAX_RIVALS + 1]) if definitions else (None, [])
        only_others = not self._pods and others.has(gang_id)
        if definition is not None and (only_others or (not self._pods and registry.defined_by_pods(definition))):
            return None
        foreign = others.problem(gang_id)
        name = definition.uid if definition is not None else self._incarnation.name
        counted = definition is not None and registry.counts_pods(definition)
        mark_sets, too_many = self._mark_sets(counted=counted)
        ancestry = composites.ancestry(definition) if definition is not None and PARENT in definition.spec else None
        known = priorities if definition is not None else None
        content = (mark_sets, too_many, definition, rivals, name, known, foreign, ancestry)
        if before is not None and content == self._read:
            return before
        self._read = content
        facts = registry.read_gang(gang_id, definition, mark_sets, priorities, rivals, ancestry)
        problems = facts.problems if foreign is None else (*facts.problems, foreign)
        if too_many:
            problems = (*problems, _too_many_declarations(Severity.BLOCKING if counted else Severity.WARNING))
        return replace(facts, incarnation=name, problems=problems)

    def _mark_sets(self, *, counted: bool) -> tuple[list[MarkSet], bool]:
        """The declarations of the oldest pods, and whether there are more."""
        for state in MemberState:
            if sets := self._sets.get(state):
                too_many = len(sets) > MAX_DECLARATIONS
                read = nsmallest(MAX_DECLARATIONS, sets.values(), key=_oldest) if too_many else sets.values()
                return [
                    MarkSet(member_set.marks, member_set.ages[0], len(member_set.ages) if counted else 0)
                    for member_set in read
                ], too_many
        return [], False

    def _leave(self, entry: _Entry) -> None:
        member_set = entry.member_set
        del member_set.ages[bisect_left(member_set.ages, entry.member.age)]
        if not member_set.ages:
            del self._sets[entry.member.state][member_set.marks]
        ages = self._ages[entry.member.state]
        del ages[bisect_left(ages, entry.member.age)]
        if not ages:
            del self._ages[entry.member.state]
        self._succeeded -= entry.member.succeeded


def _oldest(member_set: _MemberSet) -> PodAge:
    return member_set.ages[0]


def _too_many_declarations(severity: Severity) -> Problem:
    """Counts of pods need all declarations, other facts follow from the oldest pods."""
    message = f"its pods have more than {MAX_DECLARATIONS} different declarations: those of the oldest pods are read"
    return Problem(severity, message)


def _unread(gang_id: str, before: GangFacts | None, error: Exception) -> GangFacts:
    """The facts of a gang whose declaration made a computation fail: the last ones, with a problem that blocks it."""
    _MALFORMED.note(Unreadable(Reason.REJECTED, f"{gang_id}: {error}"), effect="the gang waits", error=error)
    message = f"its declaration cannot be read ({type(error).__name__}): simplify it, and report this defect of Muster"
    dialect, namespace, name = gang_id.split("/", 2)
    facts = before if before is not None else GangFacts(gang_id, dialect, namespace, name)
    return replace(facts, problems=(Problem(Severity.BLOCKING, message),))


def _age(definition: Definition) -> tuple[int, str, str]:
    return definition.created_seconds, definition.name, definition.uid


def _weight(definition: Definition) -> int:
    values, unvisited = 0, list(definition.spec.values())
    while unvisited:
        each = unvisited.pop()
        if isinstance(each, Mapping):
            unvisited.extend(each.values())
        elif isinstance(each, list):
            unvisited.extend(each)
        else:
            values += 1
    return _WEIGHT_OF_VALUE * values + sum(map(len, definition.annotations.values())) // _CHARACTERS
