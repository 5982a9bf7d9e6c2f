"""All dialects in their order of precedence, and the ways in: which marks matter, which gang they name, what it is."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, Protocol

from msgspec.structs import replace

from muster.dialects import coscheduling, koordinator, lightweight
from muster.dialects.declared import oldest_first, warning
from muster.dialects.marks import LONGEST_VALUE, Definition, DefinitionKind, GangMarks, MarkSet, Membership, Pairs
from muster.gangs.facts import GangFacts, Problem
from muster.gangs.quoting import quoted


class Dialect(Protocol):
    """What a dialect's module has."""

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
_ANNOTATIONS: Final = frozenset[str]().union(*(dialect.ANNOTATIONS for dialect in DIALECTS))


def gang_marks(namespace: str, labels: Mapping[str, str] | None, annotations: Mapping[str, str] | None) -> GangMarks:
    """The part of a pod's labels and annotations that any dialect reads; false if there is none."""
    return GangMarks(namespace, _reduced(labels, _LABELS), _reduced(annotations, _ANNOTATIONS))


@lru_cache(maxsize=16384)
def membership_of(marks: GangMarks) -> Membership | None:
    """The gang that a pod with these marks belongs to, or why its marks are no use; None for a plain pod.

    Marks that say something of a gang but name none are a problem too: such a pod was not meant to start alone.
    """
    for dialect in DIALECTS:
        membership = dialect.membership(marks)
        if membership is not None:
            return membership
    if not marks:
        return None
    dialect = next(each for each in DIALECTS if _keys_of(each, marks))
    given = ", ".join(_keys_of(dialect, marks))
    return Membership(problem=f"{given} without the gang's name: add it ({_NAMING[dialect.NAME]})")


def defined_gang(definition: Definition) -> str | None:
    """Id of the gang that an object defines; None if objects of its kind define none."""
    dialect = _BY_API_VERSION.get((definition.api_version, definition.kind))
    return None if dialect is None else f"{dialect.NAME}/{definition.namespace}/{definition.name}"


def read_gang(gang_id: str, definition: Definition | None, mark_sets: Iterable[MarkSet]) -> GangFacts:
    """What was declared of a gang: the same for the same input in any order.

    `mark_sets` has one entry for each different GangMarks among the gang's pods. Raises ValueError for an id that no
    dialect made.
    """
    dialect_name, _, rest = gang_id.partition("/")
    namespace, _, name = rest.partition("/")
    dialect = _BY_NAME.get(dialect_name)
    if dialect is None or not name:
        raise ValueError(f"{quoted(gang_id)} is not the id of a gang: dialect/namespace/name")
    pods = oldest_first(mark_sets)
    facts = dialect.read(namespace, name, definition, pods)
    unread = _unread_marks(dialect, pods)
    return replace(facts, problems=(*facts.problems, *unread)) if unread else facts


_NAMING: Final = {
    koordinator.NAME: f"annotation {koordinator.GANG_NAME} or label {koordinator.POD_GROUP_LABEL}",
    lightweight.NAME: f"label {lightweight.GANG_NAME}",
    coscheduling.NAME: f"label {coscheduling.POD_GROUP_LABEL}",
}


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
