"""All dialects in their order of precedence, and the ways in: which marks matter, which gang they name, what it is."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, Protocol

from msgspec.structs import replace

from muster.dialects import (
    batch_annotations,
    coscheduling,
    koordinator,
    kube_arbitrator,
    kube_batch,
    lightweight,
    native,
    own_marks,
    sakkara,
    sakkara_results,
)
from muster.dialects.declared import oldest_first, warning
from muster.dialects.marks import (
    LONGEST_VALUE,
    NO_PRIORITIES,
    Annotations,
    Definition,
    DefinitionKind,
    GangMarks,
    Job,
    MarkSet,
    Membership,
    Pairs,
    Transition,
)
from muster.dialects.progress import Progress, Writes
from muster.gangs.facts import OTHER_LEVELS, GangFacts, Problem
from muster.gangs.quoting import quoted


class Dialect(Protocol):
    """What a dialect's module has. Besides, if it needs them (see `_WRITES` and so on below):

    * `write(transition)`: marks for what happens to a gang;
    * `gang_of(definition)`: name of the gang that an object defines, if that is not the object's own;
    * `job(definition)`: the controller whose pods are the gang that an object defines, if no mark of theirs says so;
    * `tell(progress)`: what to write of how far a gang is;
    * `labels_at_bind(rank, tries)`: labels that members have before they are bound;
    * a beginning of further labels that it reads on pods, whose keys users complete;
    * a reason of its own for events that say why a gang does not start.
    """

    @property
    def NAME(self) -> str:  # noqa: N802 (a constant of the module)
        """Its name, the first part of its gangs' ids."""

    @property
    def DEFINITION(self) -> DefinitionKind | None:  # noqa: N802
        """Kind of the objects that define its gangs."""

    @property
    def LABELS(self) -> frozenset[str]:  # noqa: N802
        """Keys of the labels that it reads on pods."""

    @property
    def ANNOTATIONS(self) -> frozenset[str]:  # noqa: N802
        """Keys of the annotations that it reads on pods."""

    def membership(self, marks: GangMarks) -> Membership | None:
        """The gang that the marks name, or why they fail to; None if they name none."""

    def read(
        self,
        namespace: str,
        name: str,
        definition: Definition | None,
        mark_sets: Iterable[MarkSet],
        priorities: Mapping[str, int] = NO_PRIORITIES,
    ) -> GangFacts:
        """What was declared of a gang. The order of `mark_sets` does not matter. `priorities`: see read_gang."""


DIALECTS: Final[tuple[Dialect, ...]] = (
    koordinator,
    lightweight,
    coscheduling,
    kube_batch,
    batch_annotations,
    kube_arbitrator,
    sakkara,
    native,
)
"""A pod with marks of several belongs to the first."""

_BY_NAME: Final = {dialect.NAME: dialect for dialect in DIALECTS}
_BY_KIND: Final = {
    (dialect.DEFINITION.group, dialect.DEFINITION.kind): dialect for dialect in DIALECTS if dialect.DEFINITION
}
_LABELS: Final = frozenset[str]().union(*(dialect.LABELS for dialect in DIALECTS))
_ANNOTATIONS: Final = own_marks.ANNOTATIONS.union(*(dialect.ANNOTATIONS for dialect in DIALECTS))
_BEGINNINGS: Final[Mapping[str, str]] = {sakkara.NAME: sakkara.CONSTRAINT_LABELS}
_ANY_BEGINNING: Final = tuple(_BEGINNINGS.values())
_WRITES: Final[Mapping[str, Callable[[Transition], Annotations]]] = {koordinator.NAME: koordinator.write}
_GANG_OF: Final[Mapping[str, Callable[[Definition], str | None]]] = {
    kube_arbitrator.NAME: kube_arbitrator.gang_of,
    sakkara.NAME: sakkara.gang_of,
}
_JOBS: Final[Mapping[str, Callable[[Definition], Job | None]]] = {kube_arbitrator.NAME: kube_arbitrator.job}
_TELLS: Final[Mapping[str, Callable[[Progress], Writes]]] = {
    sakkara.NAME: sakkara_results.tell,
    native.NAME: native.tell,
}
_LABELS_AT_BIND: Final[Mapping[str, Callable[[int | None, int], Mapping[str, str]]]] = {
    sakkara.NAME: sakkara_results.labels_at_bind,
}
_EVENT_REASONS: Final[Mapping[str, str]] = {kube_batch.NAME: kube_batch.EVENT_REASON}


def gang_marks(
    namespace: str,
    labels: Mapping[str, str] | None,
    annotations: Mapping[str, str] | None,
    pod_group: str = "",
    job: str = "",
) -> GangMarks:
    """The part of a pod that is read of any gang; false if there is none. The last two are as in GangMarks."""
    kept = _reduced(annotations, _ANNOTATIONS)
    if annotations and own_marks.EXPECTED_DURATION in annotations:
        kept = own_marks.of_gang(kept)
    return GangMarks(namespace, _reduced(labels, _LABELS, _ANY_BEGINNING), kept, pod_group, job)


@lru_cache(maxsize=16384)
def membership_of(marks: GangMarks) -> Membership | None:
    """The gang that a pod with these marks belongs to, or why its marks are no use; None for a plain pod.

    Marks that say something of a gang but name none are a problem too: such a pod was not meant to start alone.
    """
    for dialect in DIALECTS:
        membership = dialect.membership(marks)
        if membership is not None:
            return membership
    for dialect in DIALECTS:
        if given := _keys_of(dialect, marks):
            name = f"the gang's name: add it ({_NAMING[dialect.NAME]})"
            return Membership(problem=f"{', '.join(given)} without {name}")
    return None


def defined_gang(definition: Definition) -> str | None:
    """Id of the gang that an object defines; None if it defines none."""
    dialect = _BY_KIND.get((definition.api_version.rpartition("/")[0], definition.kind))
    if dialect is None:
        return None
    gang_of = _GANG_OF.get(dialect.NAME)
    name = definition.name if gang_of is None else gang_of(definition)
    return f"{dialect.NAME}/{definition.namespace}/{name}" if name else None


JOB_KINDS: Final = frozenset(
    dialect.DEFINITION.revision_key for dialect in DIALECTS if dialect.DEFINITION and dialect.NAME in _JOBS
)
"""Kinds that have a say in who is a member, by their names in revisions: see defined_job."""


def defined_job(definition: Definition) -> Job | None:
    """The controller whose pods are members of the gang that the object defines; None: marks say who is a member."""
    dialect = _BY_KIND.get((definition.api_version.rpartition("/")[0], definition.kind))
    job = _JOBS.get(dialect.NAME) if dialect is not None else None
    return job(definition) if job is not None else None


def read_gang(
    gang_id: str,
    definition: Definition | None,
    mark_sets: Iterable[MarkSet],
    priorities: Mapping[str, int] = NO_PRIORITIES,
    rivals: Sequence[Definition] = (),
) -> GangFacts:
    """What was declared of a gang: the same for the same input in any order.

    `mark_sets` has one entry for each different GangMarks among the gang's pods. `priorities` are those of priority
    classes by name. `rivals` are objects that would define the gang too, and do not count. Raises ValueError for an id
    that no dialect made.
    """
    dialect, namespace, name = _parts(gang_id)
    pods = oldest_first(mark_sets)
    facts = dialect.read(namespace, name, definition, pods, priorities)
    own: list[Problem] = [_rivalry(definition, rival) for rival in rivals if definition is not None]
    repair_policy = own_marks.read_repair_policy(definition, pods, own)
    tree = own_marks.read_tree_name(definition, pods, own)
    constraints = own_marks.read_constraints(definition, pods, own)
    if constraints and any(each.level != OTHER_LEVELS for each in facts.constraints):
        own.append(warning(f"annotation {own_marks.TOPOLOGY} counts, and not what {dialect.NAME} has for that"))
    own_marks.check_expected_durations(pods, own)
    problems = (*facts.problems, *own, *_unread_marks(dialect, pods))
    return replace(
        facts,
        repair_policy=repair_policy,
        tree=tree or ("" if constraints else facts.tree),
        constraints=constraints or facts.constraints,
        terms=(*facts.terms, *own_marks.terms(definition, pods)),
        problems=problems,
    )


def tells(gang_id: str) -> bool:
    """Its dialect has something to write of how far the gang is."""
    return gang_id.partition("/")[0] in _TELLS


def tell(progress: Progress) -> Writes:
    """What to write of how far a gang is; the same for the same progress."""
    return _TELLS[progress.facts.dialect](progress)


def labels_at_bind(gang_id: str, rank: int | None, tries: int) -> Mapping[str, str]:
    """Labels that a member has before it is bound; `tries` of its gang so far."""
    labels = _LABELS_AT_BIND.get(gang_id.partition("/")[0])
    return labels(rank, tries) if labels is not None else {}


def event_reason(gang_id: str) -> str:
    """Reason of the events that say why a gang does not start."""
    return _EVENT_REASONS.get(gang_id.partition("/")[0], "FailedScheduling")


def timeout_annotations(gang_id: str, timed_out: bool) -> Annotations:
    """What to write on the gang's pods when it timed out, or may be tried again; empty: there is no such mark."""
    write = _WRITES.get(gang_id.partition("/")[0])
    return write(Transition.TIMED_OUT if timed_out else Transition.TRIED_ANEW) if write else {}


_NAMING: Final = {
    koordinator.NAME: f"annotation {koordinator.GANG_NAME} or label {koordinator.POD_GROUP_LABEL}",
    lightweight.NAME: f"label {lightweight.GANG_NAME}",
    coscheduling.NAME: f"label {coscheduling.POD_GROUP_LABEL}",
    kube_batch.NAME: f"annotation {kube_batch.GROUP_NAME}",
    batch_annotations.NAME: f"annotation {kube_batch.GROUP_NAME}",
    kube_arbitrator.NAME: kube_arbitrator.NAMING,
    sakkara.NAME: f"label {sakkara.GROUP_NAME}",
    native.NAME: f"field {native.FIELD}",
}


def _rivalry(counts: Definition, rival: Definition) -> Problem:
    other = f"{rival.kind} {quoted(f'{rival.namespace}/{rival.name}')}"
    return warning(f"{other} defines this gang too; {counts.kind} {quoted(counts.name)} is older and counts")


def _parts(gang_id: str) -> tuple[Dialect, str, str]:
    dialect_name, _, rest = gang_id.partition("/")
    namespace, _, name = rest.partition("/")
    dialect = _BY_NAME.get(dialect_name)
    if dialect is None or not name:
        raise ValueError(f"{quoted(gang_id)} is not the id of a gang: dialect/namespace/name")
    return dialect, namespace, name


def _reduced(given: Mapping[str, str] | None, known: frozenset[str], beginnings: tuple[str, ...] = ()) -> Pairs:
    if not given:
        return ()
    keys = given.keys() & known
    if beginnings:
        together = " ".join(given)  # few pods have such a key: they are told without a look at every key
        if any(each in together for each in beginnings):
            keys.update([key for key in given if key.startswith(beginnings)])
    return tuple([(key, given[key][:LONGEST_VALUE]) for key in sorted(keys)]) if keys else ()


def _keys_of(dialect: Dialect, marks: GangMarks) -> list[str]:
    keys = [key for key in marks.keys if _is_read(dialect, key)]
    if marks.job and dialect.NAME == kube_arbitrator.NAME:
        keys.append(kube_arbitrator.controller_of(marks))
    if marks.pod_group and dialect.NAME == native.NAME:
        keys.append(native.FIELD)
    return keys


def _is_read(dialect: Dialect, key: str) -> bool:
    if key in dialect.LABELS or key in dialect.ANNOTATIONS:
        return True
    beginning = _BEGINNINGS.get(dialect.NAME)
    return beginning is not None and key.startswith(beginning)


def _unread_marks(dialect: Dialect, pods: list[MarkSet]) -> list[Problem]:
    """Warnings about marks of other dialects: for each dialect, of the oldest pod that has any."""
    problems = []
    for other in DIALECTS:
        if other is dialect:
            continue
        for each in pods:
            keys = [key for key in _keys_of(other, each.marks) if not _is_read(dialect, key)]
            if keys:
                problems.append(
                    warning(
                        f"pod {quoted(each.oldest.name)} also has marks of the dialect {other.NAME} "
                        f"({', '.join(keys)}); only those of {dialect.NAME} count"
                    )
                )
                break
    return problems
