"""One value out of the many that a gang's pods and its definition may give for it, and Warnings about the others.

Of the pods that have a mark at all, the oldest decides; what pods say goes before what the definition says.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from muster.dialects.marks import Definition, GangMarks, MarkSet
from muster.dialects.values import BadValue, shown
from muster.gangs.facts import GangFacts, ObjectReference, Problem, Severity
from muster.gangs.quoting import quoted

T = TypeVar("T")

Reading = Callable[[GangMarks, str], str | None]
"""How a mark is read off a pod: GangMarks.label or GangMarks.annotation."""


def blocking(message: str) -> Problem:
    """The gang waits until this is mended."""
    return Problem(Severity.BLOCKING, message)


def warning(message: str) -> Problem:
    """Something else counts than what was written."""
    return Problem(Severity.WARNING, message)


class Source(Struct, frozen=True):
    """A value that somebody gave, and where it stands, in words."""

    value: Any
    where: str


def oldest_first(mark_sets: Iterable[MarkSet]) -> list[MarkSet]:
    """The sets by their oldest pods, in an order that is the same on every replica."""
    return sorted(mark_sets, key=lambda each: each.oldest)


def from_pods(mark_sets: Sequence[MarkSet], read: Reading, key: str, what: str) -> tuple[list[Source], list[Problem]]:
    """The value that the oldest pod with a mark gives it, if any pod has it, and a Warning if another pod differs.

    `mark_sets` are in oldest_first order; `what` is the mark in words, such as 'label "x"'.
    """
    deciding: Source | None = None
    for each in mark_sets:
        value = read(each.marks, key)
        if value is None:
            continue
        if deciding is None:
            deciding = Source(value, f"{what} of pod {quoted(each.oldest.name)}")
        elif value != deciding.value:
            differs = f"{what} of pod {quoted(each.oldest.name)} is {quoted(value)}"
            counts = f"{quoted(deciding.value)} counts, as on the oldest pod"
            return [deciding], [warning(f"{differs}, but {counts}: give all pods of a gang the same")]
    return [deciding] if deciding else [], []


def unless_empty(marks: GangMarks, annotation: str) -> str | None:
    """The annotation of a pod; an optional one that is empty counts as absent."""
    return marks.annotation(annotation) or None


def chosen(
    sources: Sequence[Source],
    parse: Callable[[Any], T],
    default: T,
    problems: list[Problem],
    malformed: Callable[[str], Problem],
    otherwise: str,
) -> T:
    """The first source's value. Without a source, or if the first is malformed, the default.

    A malformed one adds the problem that `malformed` makes of a sentence ending in `otherwise`: what to do, or what
    counts instead. A later source that says something else adds a Warning.
    """
    if not sources:
        return default
    first = sources[0]
    try:
        value = parse(first.value)
    except BadValue as error:
        problems.append(malformed(f"{first.where} is {error}: {otherwise}"))
        return default
    for other in sources[1:]:
        if not _says(other, parse, value):
            said = f"{other.where} is {shown(other.value)}"
            problems.append(warning(f"{said}, but {first.where} is {shown(first.value)}, which counts"))
            break
    return value


def facts(
    dialect: str,
    namespace: str,
    name: str,
    definition: Definition | None,
    pods: Sequence[MarkSet],
) -> GangFacts:
    """What of a gang is the same in all dialects: who it is, since when, and what defines it.

    The incarnation is the definition's uid, else that of the oldest pod given. Whoever keeps a gang that only pods
    declare keeps its first incarnation while it has pods, so that the gang outlives its oldest pod.
    """
    founder = pods[0].oldest if pods else None
    since = definition or founder
    return GangFacts(
        id=f"{dialect}/{namespace}/{name}",
        dialect=dialect,
        namespace=namespace,
        name=name,
        incarnation=since.uid if since else "",
        created_seconds=since.created_seconds if since else 0,
        definition=None
        if definition is None
        else ObjectReference(
            definition.api_version, definition.kind, definition.namespace, definition.name, definition.uid
        ),
    )


def _says(source: Source, parse: Callable[[Any], T], value: T) -> bool:
    try:
        return parse(source.value) == value
    except BadValue:
        return False
