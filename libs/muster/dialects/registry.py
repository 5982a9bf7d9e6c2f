"""All dialects in order of precedence: which marks matter, which gang they name, and what was declared of it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from muster.dialects import (
    batch_annotations,
    coscheduling,
    koordinator,
    kube_arbitrator,
    kube_batch,
    kueue,
    kueue_slices,
    kueue_workload,
    lightweight,
    muster_annotations,
    native,
    sakkara,
    volcano,
)
from muster.dialects.composites import Ancestry
from muster.dialects.definitions import ControllerGang, Definition
from muster.dialects.dialect import Declaration, Dialect
from muster.dialects.marks import (
    MAX_VALUE_LENGTH,
    NO_PRIORITIES,
    Annotations,
    GangMarks,
    MarkSet,
    Membership,
    Pairs,
)
from muster.dialects.progress import Progress, Writes
from muster.dialects.sources import oldest_first, warning
from muster.gangs.byte_cache import ByteCache
from muster.gangs.facts import OTHER_LEVELS, GangFacts, Problem
from muster.gangs.quoting import quoted

DIALECTS: Final[tuple[Dialect, ...]] = (
    koordinator.DIALECT,
    lightweight.DIALECT,
    coscheduling.DIALECT,
    kube_batch.DIALECT,
    batch_annotations.DIALECT,
    kube_arbitrator.DIALECT,
    sakkara.DIALECT,
    native.DIALECT,
    kueue.DIALECT,
    kueue_workload.DIALECT,
    volcano.DIALECT,
)
"""A pod with marks of several dialects belongs to the first. Those of Volcano are of kube-batch, except generated
ones, which come last.
"""


_CACHE_BYTES: Final = 16 * 1024 * 1024


class Registry:
    """Reads gangs of several dialects. Everything is derived from the dialects' values.

    Maps have entries per dialect, none per object; memberships are in a cache that is bounded by bytes (I11).
    """

    def __init__(self, dialects: Sequence[Dialect]) -> None:
        self.dialects = tuple(dialects)
        self.controller_gang_kinds: Final = frozenset(
            each.definition.revision_key for each in dialects if each.definition and each.controller_gang
        )
        """Kinds whose objects turn the pods of a controller into a gang, by their names in revisions."""
        self.membership_of: Callable[[GangMarks], Membership | None] = ByteCache(self._membership_of, _CACHE_BYTES)
        self._by_name = {each.name: each for each in dialects}
        self._rank_readers: dict[str, list[Callable[[Mapping[str, str], Mapping[str, str]], int]]] = {}
        for each in dialects:
            if each.wanted_rank is not None:
                self._rank_readers.setdefault(each.id_prefix, []).append(each.wanted_rank)
        self._by_kind = {
            (each.definition.group, each.definition.kind): each for each in dialects if each.definition is not None
        }
        self._labels = frozenset[str]().union(*(each.marks.labels | each.marks.roles for each in dialects))
        self._annotations = muster_annotations.ANNOTATIONS.union(
            *(each.marks.annotations | each.marks.roles for each in dialects)
        )
        self._label_prefixes = tuple(each.marks.label_prefix for each in dialects if each.marks.label_prefix)

    def gang_marks(
        self,
        namespace: str,
        labels: Mapping[str, str] | None,
        annotations: Mapping[str, str] | None,
        pod_group: str = "",
        controller: str = "",
    ) -> GangMarks:
        """Returns the marks of a pod; false if it has none. The last two arguments are as in GangMarks."""
        kept = _known(annotations, self._annotations)
        if annotations and muster_annotations.EXPECTED_DURATION in annotations:
            kept = muster_annotations.without_valid_duration(kept)
        if annotations and koordinator.TOPOLOGY_INDEX in annotations:
            kept = koordinator.without_valid_index(kept)
        named = _known(labels, self._labels, self._label_prefixes)
        if labels and kueue_slices.POD_SET in labels:
            named = kueue_slices.relevant_labels(named, kept)
        return GangMarks(namespace, named, kept, pod_group, controller)

    def _membership_of(self, marks: GangMarks) -> Membership | None:
        """Returns the gang of a pod with these marks, or why they are invalid; None for a plain pod.

        Marks that declare something of a gang but name none are a problem: such a pod was not meant to start alone.
        Of marks that another controller reads too, only the dialect knows which declare something.
        """
        for dialect in self.dialects:
            membership = dialect.membership(marks)
            if membership is not None:
                return membership
        for dialect in self.dialects:
            if not dialect.marks.shared and (given := dialect.marks.of(marks)):
                return Membership(
                    problem=f"{', '.join(given)} without the gang's name: add it ({dialect.marks.naming})"
                )
        return None

    def defined_gang(self, definition: Definition) -> str | None:
        """Returns the id of the gang that an object defines; None if it defines none."""
        dialect = self._defining(definition)
        name = dialect.gang_name(definition) if dialect is not None else ""
        return f"{dialect.id_prefix}/{definition.namespace}/{name}" if dialect is not None and name else None

    def counts_pods(self, definition: Definition) -> bool:
        """Returns whether reading the gang that an object defines needs the numbers of its pods."""
        dialect = self._defining(definition)
        return dialect is not None and dialect.counts_pods(definition)

    def has_plain_pods(self, definition: Definition) -> bool:
        """Returns whether an object makes no gang of the pods that name it."""
        dialect = self._defining(definition)
        return dialect is not None and dialect.has_plain_pods(definition)

    def defined_by_pods(self, definition: Definition) -> bool:
        """Returns whether an object is a gang only if a pod of Muster's names it."""
        dialect = self._defining(definition)
        return dialect is not None and dialect.defined_by_pods

    def controller_gang(self, definition: Definition) -> ControllerGang | None:
        """Returns the controller whose pods are the gang that the object defines; None if marks name the members."""
        dialect = self._defining(definition)
        if dialect is None or dialect.controller_gang is None:
            return None
        return dialect.controller_gang(definition)

    def read_gang(
        self,
        gang_id: str,
        definition: Definition | None,
        mark_sets: Iterable[MarkSet],
        priorities: Mapping[str, int] = NO_PRIORITIES,
        rivals: Sequence[Definition] = (),
        ancestry: Ancestry | None = None,
    ) -> GangFacts:
        """Reads what was declared of a gang. The result does not depend on the order of `mark_sets`.

        `mark_sets` has one entry for each distinct GangMarks among the gang's pods. `priorities` maps names of priority
        classes to their values. `rivals` are further objects that define the gang; they are ignored with a Warning.
        `ancestry`: the sets of gangs that `definition` names as parents. Raises ValueError for an id of no dialect.
        """
        dialect, namespace, name = self._parse_id(gang_id)
        if definition is not None and (defining := self._defining(definition)) is not None:
            dialect = defining if defining.id_prefix == dialect.name else dialect
        pods = oldest_first(mark_sets)
        facts = dialect.read(Declaration(namespace, name, definition, pods, priorities, ancestry))
        problems: list[Problem] = [_rival_warning(definition, rival) for rival in rivals if definition is not None]
        repair_policy = muster_annotations.read_repair_policy(definition, pods, problems)
        tree = muster_annotations.read_tree_name(definition, pods, problems)
        constraints = muster_annotations.read_constraints(definition, pods, problems)
        if constraints and any(each.level != OTHER_LEVELS for each in facts.constraints):
            problems.append(
                warning(
                    f"annotation {muster_annotations.TOPOLOGY} replaces the topology constraints of the dialect "
                    f"{dialect.name}"
                )
            )
        elastic = muster_annotations.read_elastic(definition, pods, problems)
        muster_annotations.check_expected_durations(pods, problems)
        return replace(
            facts,
            repair_policy=repair_policy,
            evicted_whole=facts.evicted_whole or not elastic,
            tree=tree or ("" if constraints else facts.tree),
            constraints=constraints or facts.constraints,
            terms=(*facts.terms, *muster_annotations.terms(definition, pods)),
            problems=(*facts.problems, *problems, *self._ignored_marks(dialect, pods)),
        )

    def writes_progress(self, gang_id: str) -> bool:
        """Returns whether the gang's dialect writes progress anywhere."""
        dialect = self._by_name.get(_dialect_name(gang_id))
        return dialect is not None and dialect.write_progress is not None

    def progress_writes(self, progress: Progress) -> Writes:
        """Returns the writes for a gang's progress; the same for the same progress."""
        write = self._by_name[progress.facts.dialect].write_progress
        return write(progress) if write is not None else Writes()

    def wanted_rank(
        self, gang_id: str, annotations: Mapping[str, str] | None, labels: Mapping[str, str] | None = None
    ) -> int:
        """Returns the rank that a member of the gang asks for; -1 if none."""
        readers = self._rank_readers.get(_dialect_name(gang_id))
        if readers is None:
            return -1
        return max([read(annotations or {}, labels or {}) for read in readers])

    def labels_at_bind(self, gang_id: str, rank: int | None, attempts: int) -> Mapping[str, str]:
        """Returns the labels that a member gets before it is bound, after this many attempts of its gang."""
        dialect = self._by_name.get(_dialect_name(gang_id))
        return dialect.labels_at_bind(rank, attempts) if dialect is not None else {}

    def event_reason(self, gang_id: str) -> str:
        """Returns the reason of events that report why a gang does not start."""
        dialect = self._by_name.get(_dialect_name(gang_id))
        return dialect.event_reason if dialect is not None else "FailedScheduling"

    def timeout_annotations(self, gang_id: str, timed_out: bool) -> Annotations:
        """Returns the annotations for the pods of a gang that timed out, or may be tried again.

        Empty if the dialect has no such mark.
        """
        dialect = self._by_name.get(_dialect_name(gang_id))
        return dialect.timeout_annotations(timed_out) if dialect is not None else {}

    def _defining(self, definition: Definition) -> Dialect | None:
        return self._by_kind.get((definition.api_version.rpartition("/")[0], definition.kind))

    def _parse_id(self, gang_id: str) -> tuple[Dialect, str, str]:
        dialect_name, _, rest = gang_id.partition("/")
        namespace, _, name = rest.partition("/")
        dialect = self._by_name.get(dialect_name)
        if dialect is None or not name:
            raise ValueError(f"{quoted(gang_id)} is not the id of a gang: dialect/namespace/name")
        return dialect, namespace, name

    def _ignored_marks(self, dialect: Dialect, pods: list[MarkSet]) -> list[Problem]:
        """Returns one Warning for each other dialect, about the oldest pod that has marks of it.

        None for marks that another controller reads too.
        """
        problems = []
        for other in self.dialects:
            if other is dialect or other.marks.shared:
                continue
            for each in pods:
                keys = [key for key in other.marks.of(each.marks) if not dialect.marks.reads(key)]
                if keys:
                    problems.append(
                        warning(
                            f"pod {quoted(each.oldest.name)} also has marks of the dialect {other.name} "
                            f"({', '.join(keys)}); only those of {dialect.name} are used"
                        )
                    )
                    break
        return problems


def _rival_warning(definition: Definition, rival: Definition) -> Problem:
    other = f"{rival.kind} {quoted(f'{rival.namespace}/{rival.name}')}"
    used = f"{definition.kind} {quoted(definition.name)}"
    if rival.api_version != definition.api_version:
        other, used = f"{other} ({rival.api_version})", f"{used} ({definition.api_version})"
    return warning(f"{other} defines this gang too; {used} is older and is used instead")


def _dialect_name(gang_id: str) -> str:
    return gang_id.partition("/")[0]


def _known(given: Mapping[str, str] | None, known: frozenset[str], prefixes: tuple[str, ...] = ()) -> Pairs:
    """Returns the pairs with a known key or prefix, sorted by key, with values cut to MAX_VALUE_LENGTH."""
    if not given:
        return ()
    keys = given.keys() & known
    if prefixes:
        joined = " ".join(given)  # few pods have such a key: one search of all keys is faster than one per key
        if any(each in joined for each in prefixes):
            keys.update([key for key in given if key.startswith(prefixes)])
    return tuple([(key, given[key][:MAX_VALUE_LENGTH]) for key in sorted(keys)]) if keys else ()


_REGISTRY: Final = Registry(DIALECTS)
CONTROLLER_GANG_KINDS: Final = _REGISTRY.controller_gang_kinds
gang_marks = _REGISTRY.gang_marks
membership_of = _REGISTRY.membership_of
defined_gang = _REGISTRY.defined_gang
counts_pods = _REGISTRY.counts_pods
has_plain_pods = _REGISTRY.has_plain_pods
defined_by_pods = _REGISTRY.defined_by_pods
controller_gang = _REGISTRY.controller_gang
read_gang = _REGISTRY.read_gang
writes_progress = _REGISTRY.writes_progress
progress_writes = _REGISTRY.progress_writes
wanted_rank = _REGISTRY.wanted_rank
labels_at_bind = _REGISTRY.labels_at_bind
event_reason = _REGISTRY.event_reason
timeout_annotations = _REGISTRY.timeout_annotations
