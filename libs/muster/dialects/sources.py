"""Chooses one value among those that a gang's pods and its definition give, with Warnings about the others.

Among the pods that have a mark, the oldest decides. `pod_terms` and `definition_terms` quote the declaration in the
user's own words, for `muster explain`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from muster.dialects.definitions import Definition
from muster.dialects.dialect import Declaration
from muster.dialects.marks import GangMarks, MarkSet, Membership
from muster.dialects.resources import parse_amounts
from muster.dialects.values import BadValue, describe_unknown_fields, parse_gang_name, quoted_value
from muster.gangs.facts import Amounts, GangFacts, Problem, Severity
from muster.gangs.quoting import quoted

T = TypeVar("T")

MarkReader = Callable[[GangMarks, str], str | None]
"""Reads a mark of a pod by key: GangMarks.label or GangMarks.annotation."""


def blocking(message: str, reason: str = "") -> Problem:
    """A problem that keeps the gang pending until the user corrects the declaration. `reason`: see Problem."""
    return Problem(Severity.BLOCKING, message, reason)


def undeclared(message: str) -> Problem:
    """The object that defines the gang does not exist."""
    return blocking(message, "GangNotDeclared")


def warning(message: str) -> Problem:
    """A problem that does not keep the gang from starting: another value is used than the one given."""
    return Problem(Severity.WARNING, message)


def member_of(dialect: str, namespace: str, name: str, where: str, *, timed_out: bool = False) -> Membership:
    """Returns the membership in the gang of that name, or a problem that quotes the name and `where` it is written."""
    try:
        return Membership(f"{dialect}/{namespace}/{parse_gang_name(name)}", timed_out=timed_out)
    except BadValue as error:
        return Membership(problem=f"{where} is {error}")


def gang_facts(dialect: str, declaration: Declaration) -> GangFacts:
    """Returns the facts that every dialect has: identity, age and definition.

    The incarnation is the definition's uid, else that of the oldest pod given. For a gang without a definition, the
    caller keeps the first incarnation while the gang has pods, so that the gang outlives its oldest pod.
    """
    definition = declaration.definition
    oldest_pod = declaration.pods[0].oldest if declaration.pods else None
    origin = definition or oldest_pod
    return GangFacts(
        id=f"{dialect}/{declaration.namespace}/{declaration.name}",
        dialect=dialect,
        namespace=declaration.namespace,
        name=declaration.name,
        incarnation=origin.uid if origin else "",
        created_seconds=origin.created_seconds if origin else 0,
        definition=definition.reference if definition is not None else None,
    )


class Source(Struct, frozen=True):
    """A value that a user wrote, and where it is written, in words."""

    value: Any
    where: str


def oldest_first(mark_sets: Iterable[MarkSet]) -> list[MarkSet]:
    """Returns the mark sets ordered by their oldest pods, in the same order on every replica."""
    return sorted(mark_sets, key=lambda each: each.oldest)


def from_pods(
    mark_sets: Sequence[MarkSet], read: MarkReader, key: str, mark: str
) -> tuple[list[Source], list[Problem]]:
    """Returns the mark's value on the oldest pod that has it, if any, and a Warning if another pod differs.

    `mark_sets` are ordered by oldest_first. `mark` is the mark in words, such as 'label "x"'.
    """
    deciding: Source | None = None
    for each in mark_sets:
        value = read(each.marks, key)
        if value is None:
            continue
        if deciding is None:
            deciding = Source(value, f"{mark} of pod {quoted(each.oldest.name)}")
        elif value != deciding.value:
            differs = f"{mark} of pod {quoted(each.oldest.name)} is {quoted(value)}"
            used = f"{quoted(deciding.value)} is used, as on the oldest pod"
            return [deciding], [warning(f"{differs}, but {used}: give all pods of a gang the same value")]
    return [deciding] if deciding else [], []


def annotation_unless_empty(marks: GangMarks, annotation: str) -> str | None:
    """Reads an optional annotation of a pod. An empty value counts as absent."""
    return marks.annotation(annotation) or None


def label_unless_empty(marks: GangMarks, label: str) -> str | None:
    """Reads an optional label of a pod. An empty value counts as absent."""
    return marks.label(label) or None


def choose(
    sources: Sequence[Source],
    parse: Callable[[Any], T],
    default: T,
    problems: list[Problem],
    malformed: Callable[[str], Problem],
    otherwise: str,
) -> T:
    """Returns the first source's value; the default if there is no source or the first one is malformed.

    A malformed value adds the problem that `malformed` makes of a sentence ending in `otherwise`: what to do, or which
    value is used instead. A later source with a different value adds a Warning.
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
        if not _parses_to(other, parse, value):
            ignored = f"{other.where} is {quoted_value(other.value)}"
            problems.append(warning(f"{ignored}, but {first.where} is {quoted_value(first.value)}, which is used"))
            break
    return value


def unknown_fields(given: Any, known: Iterable[str], where: str) -> list[Problem]:
    """Returns a Warning about the fields of an object that are none of the known ones. `where` is it in words."""
    message = describe_unknown_fields(given, known, where)
    return [warning(message)] if message else []


def choose_class_priority(name: Any, priorities: Mapping[str, int], where: str, problems: list[Problem]) -> int | None:
    """Returns the value of the priority class that a definition names; None if it names none.

    None with a Warning if there is no such class: the gang then has the priority of its pods. `where` is the field in
    words.
    """
    if not name:
        return None
    priority = priorities.get(name) if isinstance(name, str) else None
    if priority is None:
        used = "the priority of the gang's pods is used until there is one"
        problems.append(warning(f"{where} is {quoted_value(name)}, but no PriorityClass has that name: {used}"))
    return priority


def min_resources(definition: Definition, problems: list[Problem]) -> Amounts:
    """Returns the amounts of spec.minResources, which must be free before the gang is tried.

    None with a Warning if they are invalid.
    """
    value = definition.spec.get("minResources")
    where = f"spec.minResources of {definition.kind} {quoted(f'{definition.namespace}/{definition.name}')}"
    none: Amounts = ()
    otherwise = "only the requests of the pods are used"
    return choose([Source(value, where)] if value else [], _amounts_of_nodes, none, problems, warning, otherwise)


def _amounts_of_nodes(value: Any) -> Amounts:
    """Parses a resource list under the names that nodes offer. Volcano's controllers declare those that a ResourceQuota
    counts, besides: requests.cpu is cpu, count/pods is pods, and of limits and other objects nodes have none. Raises
    BadValue.
    """
    parse_amounts(value)  # errors quote the names as they are written
    largest: dict[str, int] = {}
    for name, each in value.items():
        offered = "pods" if name == "count/pods" else name.removeprefix("requests.")
        if not offered.startswith(("limits.", "count/")):
            for _, amount in parse_amounts({offered: each}):
                largest[offered] = max(amount, largest.get(offered, 0))
    return tuple(sorted(largest.items()))


def pod_terms(pods: Sequence[MarkSet], read: MarkReader, keys: Iterable[str]) -> Iterator[str]:
    """Quotes marks of pods, each from the oldest pod that has it. `pods` are ordered by oldest_first."""
    for key in keys:
        for each in pods:
            if (value := read(each.marks, key)) is not None:
                yield f"{key}: {term_value(value)} (pod {each.oldest.name})"
                break


def definition_terms(
    definition: Definition | None, fields: Iterable[str], annotations: Iterable[str] = ()
) -> Iterator[str]:
    """Quotes annotations of an object and fields of its spec, by their paths ("schedulingPolicy.gang")."""
    if definition is None:
        return
    where = f"({definition.kind} {definition.namespace}/{definition.name})"
    given = {key: definition.annotations.get(key) for key in annotations}
    given |= {path: _field(definition.spec, path) for path in fields}
    for key, value in given.items():
        if value is not None and value != "":
            yield f"{key}: {term_value(value)} {where}"


def term_value(value: Any) -> str:
    """Returns a value as the user wrote it, on one line; in quotes only if it is blank or unprintable."""
    text = quoted_value(" ".join(value.split()) if isinstance(value, str) else value)
    return text[1:-1] if len(text) > 2 and text.isprintable() else repr(text[1:-1])


def _field(spec: Any, path: str) -> Any:
    for name in path.split("."):
        spec = spec.get(name) if isinstance(spec, Mapping) else None
    return spec


def _parses_to(source: Source, parse: Callable[[Any], T], value: T) -> bool:
    try:
        return parse(source.value) == value
    except BadValue:
        return False
