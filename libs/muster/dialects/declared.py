"""One value out of the many that a gang's pods and its definition may give for it, and Warnings about the others.

`pod_terms` and `definition_terms` keep what was given in the words of who gave it, for those who read explanations.

Of the pods that have a mark at all, the oldest decides; what pods say goes before what the definition says.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from msgspec import Struct

from muster.dialects.marks import Definition, GangMarks, MarkSet, Membership
from muster.dialects.values import BadValue, gang_name, shown
from muster.gangs.facts import GangFacts, Problem, Severity
from muster.gangs.quoting import quoted

T = TypeVar("T")

_LONGEST_REASON: Final = 1024

Reading = Callable[[GangMarks, str], str | None]
"""How a mark is read off a pod: GangMarks.label or GangMarks.annotation."""


def blocking(message: str) -> Problem:
    """The gang waits until this is mended."""
    return Problem(Severity.BLOCKING, message)


def warning(message: str) -> Problem:
    """Something else counts than what was written."""
    return Problem(Severity.WARNING, message)


def member_of(dialect: str, namespace: str, name: str, where: str, *, timed_out: bool = False) -> Membership:
    """A member of the gang of that name, which a pod gives at `where`, in words; it may be no name."""
    try:
        return Membership(f"{dialect}/{namespace}/{gang_name(name)}", timed_out=timed_out)
    except BadValue as error:
        return Membership(problem=f"{where} is {error}")


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


def class_priority(name: Any, priorities: Mapping[str, int], where: str, problems: list[Problem]) -> int | None:
    """The priority of a class that a definition names. If there is no such class that of the gang's pods counts, with a
    Warning. `where` is the field in words.
    """
    if not name:
        return None
    priority = priorities.get(name) if isinstance(name, str) else None
    if priority is None:
        counts = "the priority of the gang's pods counts until there is one"
        problems.append(warning(f"{where} is {shown(name)}, but no PriorityClass has that name: {counts}"))
    return priority


def pod_terms(pods: Sequence[MarkSet], read: Reading, keys: Iterable[str]) -> Iterator[str]:
    """Marks as they stand on the pods, each on the oldest that has it. `pods` are in oldest_first order."""
    for key in keys:
        for each in pods:
            if (value := read(each.marks, key)) is not None:
                yield f"{key}: {_plainly(value)} (pod {each.oldest.name})"
                break


def definition_terms(
    definition: Definition | None, fields: Iterable[str], annotations: Iterable[str] = ()
) -> Iterator[str]:
    """What an object says: annotations, and fields of its spec, by their paths in it ("schedulingPolicy.gang")."""
    if definition is None:
        return
    where = f"({definition.kind} {definition.namespace}/{definition.name})"
    given = {key: definition.annotations.get(key) for key in annotations}
    given |= {path: _at(definition.spec, path) for path in fields}
    for key, value in given.items():
        if value is not None and value != "":
            yield f"{key}: {_plainly(value)} {where}"


QUOTA_RESERVED: Final = "QuotaReserved"
"""Condition of a PodGroup: "False" while what it asks in total does not fit the namespace's quota."""


QUOTA_WAITS: Final = "muster.dev/quota-waits"
"""Annotation that says why a PodGroup waits for quota, where its kind keeps no conditions."""


def quota_problems(definition: Definition) -> list[Problem]:
    """Why a gang waits for quota; nothing while nobody says that it has to."""
    if waits := definition.annotations.get(QUOTA_WAITS):
        return [_without_quota(waits)]
    conditions = definition.status.get("conditions")
    for condition in conditions if isinstance(conditions, list) else []:
        if isinstance(condition, dict) and condition.get("type") == QUOTA_RESERVED:
            if condition.get("status") != "False":
                return []
            message = condition.get("message")
            why = message if isinstance(message, str) and message else "the namespace's quota has no room for it"
            return [_without_quota(why)]
    return []


def _without_quota(why: str) -> Problem:
    return blocking(f"quota is not reserved for it yet: {why[:_LONGEST_REASON]}")


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
        definition=definition.reference if definition is not None else None,
    )


def _at(spec: Any, path: str) -> Any:
    for name in path.split("."):
        spec = spec.get(name) if isinstance(spec, Mapping) else None
    return spec


def _plainly(value: Any) -> str:
    """A value as it was written, in one line; in quotes only if there is nothing to see of it."""
    text = shown(" ".join(value.split()) if isinstance(value, str) else value)
    return text[1:-1] if len(text) > 2 and text.isprintable() else repr(text[1:-1])


def _says(source: Source, parse: Callable[[Any], T], value: T) -> bool:
    try:
        return parse(source.value) == value
    except BadValue:
        return False
