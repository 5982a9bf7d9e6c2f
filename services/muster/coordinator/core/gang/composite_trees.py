"""Trees of composites: sets of gangs and further sets, of which at least a number of children start together.

A child is complete if it counts: a gang by itself, a composite with as many complete children as it needs. A composite
of which the started children suffice *has started*; the rest of its children are optional from then on, and each starts
on its own when it fits. So a gang that waits belongs with those below the same *root to start*: the highest composite
above it that can be reached without passing one that has started.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from muster.coordinator.core.gang.gang import Gang
from muster.gangs.facts import CompositeFacts
from muster.gangs.quoting import quoted

_MAX_NAMED: Final = 3


def composites_of(gang: Gang) -> tuple[CompositeFacts, ...]:
    """The composites above a gang, the outermost first."""
    return gang.facts.composites if gang.facts is not None else ()


def gangs_of_tree(gang: Gang, known: Mapping[str, Gang]) -> list[Gang]:
    """The gangs that exist in the tree of a gang in composites, itself included. `known` are all gangs by id."""
    assert gang.facts is not None
    root = gang.facts.composites[0].name
    found = (known.get(id_) for id_ in dict.fromkeys((*gang.facts.group, gang.id)))
    return [each for each in found if each is not None and (own := composites_of(each)) and own[0].name == root]


def has_started(gang: Gang) -> bool:
    """The gang counts as a child that was started."""
    return gang.permit.granted


class Children:
    """Complete children of each composite of a tree."""

    def __init__(self, gangs: Iterable[Gang], counts: Callable[[Gang], bool]) -> None:
        """`counts`: whether a gang is complete."""
        self._complete: Counter[str] = Counter()
        composites: dict[str, tuple[CompositeFacts, str]] = {}  # parents come before their children
        for gang in gangs:
            above = ""
            for each in composites_of(gang):
                composites.setdefault(each.name, (each, above))
                above = each.name
            if counts(gang):
                self._complete[above] += 1
        for composite, above in reversed(composites.values()):
            if self.suffice(composite):
                self._complete[above] += 1

    def complete(self, composite: CompositeFacts) -> int:
        """Number of complete children of a composite."""
        return self._complete[composite.name]

    def suffice(self, composite: CompositeFacts) -> bool:
        """A composite has as many complete children as it needs."""
        return self._complete[composite.name] >= composite.minimum

    def missing(self, composite: CompositeFacts) -> int:
        """Children that a composite lacks."""
        return max(0, composite.minimum - self._complete[composite.name])


def started_children(gang: Gang, known: Mapping[str, Gang]) -> Children:
    """The started children of the composites in the tree of a gang."""
    return Children(gangs_of_tree(gang, known), has_started)


def root_to_start(gang: Gang, started: Children) -> CompositeFacts | None:
    """The composite with whose other gangs a gang that waits starts; None: it starts on its own."""
    root = None
    for each in reversed(composites_of(gang)):
        if started.suffice(each):
            break
        root = each
    return root


def lacks_children(gangs: Collection[Gang], known: Mapping[str, Gang]) -> str | None:
    """Why gangs that wait cannot start together, not even some of them (I1): the composite that would start with too
    few children, in words; None: some can. All of them have the same root to start.
    """
    first = next(iter(gangs), None)
    if first is None or not composites_of(first):
        return None
    tree = gangs_of_tree(first, known)
    root = root_to_start(first, Children(tree, has_started))
    if root is None:
        return None
    together = Children(tree, lambda gang: has_started(gang) or gang in gangs)
    return None if together.suffice(root) else _too_few(root, together, gangs, known)


def incomplete_composite(gangs: Collection[Gang], known: Mapping[str, Gang]) -> str | None:
    """The composite that would start with too few children if all of these gangs started, in words (I1); None: none."""
    first = next(iter(gangs), None)
    if first is None or not composites_of(first):
        return None
    tree = gangs_of_tree(first, known)
    started = Children(tree, has_started)
    together = Children(tree, lambda gang: has_started(gang) or gang in gangs)
    for gang in gangs:
        for composite in reversed(composites_of(gang)):
            if started.suffice(composite):
                break
            if not together.suffice(composite):
                return _too_few(composite, together, gangs, known)
    return None


def able_to_start(gangs: Collection[Gang], permitted: Collection[Gang], known: Mapping[str, Gang]) -> list[Gang]:
    """Returns which of these gangs can start although the others of `permitted`, which have a permit and do not run
    yet, do not: each composite above them, up to one that has started before, has as many complete children as it needs
    (I1).
    """
    first = next(iter(gangs), None)
    if first is None:
        return []
    tree = gangs_of_tree(first, known)
    before = {gang for gang in tree if has_started(gang)}.difference(permitted)
    started = Children(tree, before.__contains__)
    able, fewer = list(gangs), -1
    while fewer != len(able):
        fewer = len(able)
        together = Children(tree, before.union(able).__contains__)
        able = [gang for gang in able if _completes(gang, started, together)]
    return able


def _completes(gang: Gang, started: Children, together: Children) -> bool:
    for composite in reversed(composites_of(gang)):
        if started.suffice(composite):
            break
        if not together.suffice(composite):
            return False
    return True


def _too_few(composite: CompositeFacts, together: Children, gangs: Collection[Gang], known: Mapping[str, Gang]) -> str:
    others = _others(next(iter(gangs)), gangs, known)
    return (
        f"composite {quoted(composite.name)} starts with at least {composite.minimum} of its groups, and "
        f"{together.complete(composite)} can start{others}"
    )


def _others(gang: Gang, gangs: Collection[Gang], known: Mapping[str, Gang]) -> str:
    """The gangs of the tree that cannot start, in words."""
    assert gang.facts is not None
    names = []
    for id_ in gang.facts.group:
        other = known.get(id_)
        if other is None or not (has_started(other) or other in gangs):
            names.append(id_.split("/", 1)[1])
    if not names:
        return ""
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"; {', '.join(names[:_MAX_NAMED])}{more} cannot"


def least_members(gangs: Iterable[Gang], known: Mapping[str, Gang]) -> int:
    """The least number of pending members with which gangs that wait start together."""
    gangs = list(gangs)
    if not gangs or not composites_of(gangs[0]):
        return sum(gang.must_place for gang in gangs)
    started = started_children(gangs[0], known)
    root = root_to_start(gangs[0], started)
    if root is None:
        return sum(gang.must_place for gang in gangs)
    sizes: dict[str, list[int]] = {}
    composites: dict[str, tuple[CompositeFacts, str]] = {}
    for gang in gangs:
        above = ""
        for each in composites_of(gang):
            composites.setdefault(each.name, (each, above))
            above = each.name
        sizes.setdefault(above, []).append(gang.must_place)
    for name in reversed(composites):
        composite, above = composites[name]
        missing = started.missing(composite)
        least = sum(sorted(sizes.get(name, ()))[:missing])
        if name == root.name:
            return least
        if len(sizes.get(name, ())) >= missing:
            sizes.setdefault(above, []).append(least)
    return 0
