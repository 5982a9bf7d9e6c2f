"""All dialects in their order of precedence, and the ways in: which marks matter, which gang they name, what it is."""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final, Protocol

from msgspec.structs import replace

from muster.dialects import coscheduling, koordinator, lightweight, own_marks
from muster.dialects.declared import oldest_first, warning
from muster.dialects.marks import (
    LONGEST_VALUE,
    Annotations,
    Definition,
    DefinitionKind,
    GangMarks,
    MarkSet,
    Membership,
    Pairs,
    Transition,
)
from muster.gangs.facts import GangFacts, Problem
from muster.gangs.quoting import quoted


class Dialect(Protocol):
    """What a dialect's module has; `write` too, if it has marks for what happens to a gang."""

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

    def read(self, namespace: str, name: str, definition: Definition | None, mark_sets: Iterable[MarkSet]) -> GangFacts:
        """What was declared of a gang. The order of `mark_sets` does not matter."""


DIALECTS: Final[tuple[Dialect, ...]] = (koordinator, lightweight, coscheduling)
"""A pod with marks of several belongs to the first."""

_BY_NAME: Final = {dialect.NAME: dialect for dialect in DIALECTS}
_BY_API_VERSION: Final = {
    (dialect.DEFINITION.api_version, dialect.DEFINITION.kind): dialect for dialect in DIALECTS if dialect.DEFINITION
}
_LABELS: Final = frozenset[str]().union(*(dialect.LABELS for dialect in DIALECTS))
_ANNOTATIONS: Final = own_marks.ANNOTATIONS.union(*(dialect.ANNOTATIONS for dialect in DIALECTS))
_WRITES: Final[Mapping[str, Callable[[Transition], Annotations]]] = {koordinator.NAME: koordinator.write}


def gang_marks(namespace: str, labels: Mapping[str, str] | None, annotations: Mapping[str, str] | None) -> GangMarks:
    """The part of a pod's labels and annotations that is read of any gang; false if there is none."""
    kept = _reduced(annotations, _ANNOTATIONS)
    if annotations and own_marks.EXPECTED_DURATION in annotations:
        kept = own_marks.of_gang(kept)
    return GangMarks(namespace, _reduced(labels, _LABELS), kept)


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
    """Id of the gang that an object defines; None if objects of its kind define none."""
    dialect = _BY_API_VERSION.get((definition.api_version, definition.kind))
    return None if dialect is None else f"{dialect.NAME}/{definition.namespace}/{definition.name}"


def read_gang(gang_id: str, definition: Definition | None, mark_sets: Iterable[MarkSet]) -> GangFacts:
    """What was declared of a gang: the same for the same input in any order.

    `mark_sets` has one entry for each different GangMarks among the gang's pods. Raises ValueError for an id that no
    dialect made.
    """
    dialect, namespace, name = _parts(gang_id)
    pods = oldest_first(mark_sets)
    facts = dialect.read(namespace, name, definition, pods)
    own: list[Problem] = []
    repair_policy = own_marks.read_repair_policy(definition, pods, own)
    tree = own_marks.read_tree_name(definition, pods, own)
    constraints = own_marks.read_constraints(definition, pods, own)
    own_marks.check_expected_durations(pods, own)
    problems = (*facts.problems, *own, *_unread_marks(dialect, pods))
    return replace(facts, repair_policy=repair_policy, tree=tree, constraints=constraints, problems=problems)


def timeout_annotations(gang_id: str, timed_out: bool) -> Annotations:
    """What to write on the gang's pods when it timed out, or may be tried again; empty: there is no such mark."""
    write = _WRITES.get(gang_id.partition("/")[0])
    return write(Transition.TIMED_OUT if timed_out else Transition.TRIED_ANEW) if write else {}


_NAMING: Final = {
    koordinator.NAME: f"annotation {koordinator.GANG_NAME} or label {koordinator.POD_GROUP_LABEL}",
    lightweight.NAME: f"label {lightweight.GANG_NAME}",
    coscheduling.NAME: f"label {coscheduling.POD_GROUP_LABEL}",
}


def _parts(gang_id: str) -> tuple[Dialect, str, str]:
    dialect_name, _, rest = gang_id.partition("/")
    namespace, _, name = rest.partition("/")
    dialect = _BY_NAME.get(dialect_name)
    if dialect is None or not name:
        raise ValueError(f"{quoted(gang_id)} is not the id of a gang: dialect/namespace/name")
    return dialect, namespace, name


def _reduced(given: Mapping[str, str] | None, known: frozenset[str]) -> Pairs:
    if not given:
        return ()
    keys = given.keys() & known
    return tuple([(key, given[key][:LONGEST_VALUE]) for key in sorted(keys)]) if keys else ()


def _keys_of(dialect: Dialect, marks: GangMarks) -> list[str]:
    own = dialect.LABELS | dialect.ANNOTATIONS
    return [key for key in marks.keys if key in own]


def _unread_marks(dialect: Dialect, pods: list[MarkSet]) -> list[Problem]:
    """Warnings about marks of other dialects: for each dialect, of the oldest pod that has any."""
    problems = []
    own = dialect.LABELS | dialect.ANNOTATIONS
    for other in DIALECTS:
        if other is dialect:
            continue
        for each in pods:
            keys = [key for key in _keys_of(other, each.marks) if key not in own]
            if keys:
                problems.append(
                    warning(
                        f"pod {quoted(each.oldest.name)} also has marks of the dialect {other.NAME} "
                        f"({', '.join(keys)}); only those of {dialect.NAME} count"
                    )
                )
                break
    return problems
