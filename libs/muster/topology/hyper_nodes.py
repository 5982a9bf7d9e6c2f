"""Topology trees of Volcano's HyperNodes, which list their nodes or other HyperNodes by name, pattern or label.

    tier-3        s1                 a level for each tier, down to 1, or 0 if a HyperNode has it
    tier-2        s1    r2           on a level, a node is in its highest HyperNode up to that tier: r2 is in s1, and
    tier-1   r1   n5    r2           r1 too; a node that has none, such as n5, is a domain of its own
    node     n1   n5    n3

The same tree exists a second time, with the names of the tiers as names of its levels.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import re2
from msgspec import Struct

from muster.gangs.facts import ObjectReference, Problem, Severity, TopologyTree, TreeDomain, TreeLevel
from muster.gangs.quoting import quoted
from muster.gangs.selectors import LabelSelector
from muster.topology.constraints import is_level_name
from muster.topology.trees import MAX_LEVELS, NODE_LEVEL

BY_TIER: Final = "hypernodes"
"""Name of the tree whose levels are named tier-1, tier-2 and so on."""
BY_TIER_NAME: Final = "hypernodes by tier name"

MAX_TIER: Final = MAX_LEVELS - 2
MAX_MEMBERS: Final = 10_000
"""Entries of a HyperNode's members."""
MAX_PATTERN_LENGTH: Final = 256

_MOST_NAMED: Final = 6
_MOST_REPORTED: Final = 10
"""HyperNodes about which there are Warnings."""
_MAX_INSTRUCTIONS: Final = 512
"""Of a compiled pattern. The time of a search grows with their number."""
_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.encoding = re2.Options.Encoding.LATIN1  # names are ASCII, and classes such as \pL remain small
_OPTIONS.max_mem = 1 << 18
"""Bytes of a compiled pattern and its state."""


class BadHyperNodes(ValueError):
    """The HyperNodes are no tree. `about` is the HyperNode whose correction is needed."""

    def __init__(self, message: str, about: ObjectReference) -> None:
        super().__init__(message)
        self.about = about


class BadPattern(ValueError):
    """A pattern that cannot be used. The message quotes it and says what it must be."""


class MemberSelector(Struct, frozen=True):
    """Selects nodes, or HyperNodes, by exactly one of name, pattern and labels."""

    of_nodes: bool
    name: str = ""
    pattern: str = ""
    labels: LabelSelector | None = None


class HyperNode(Struct, frozen=True):
    """A HyperNode; with a problem, its other fields do not count."""

    name: str
    reference: ObjectReference
    tier: int = 0
    tier_name: str = ""
    members: tuple[MemberSelector, ...] = ()
    problem: str = ""


def tier_level(tier: int) -> str:
    """Name of the level of a tier."""
    return f"tier-{tier}"


def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Returns whether a pattern of Go matches anywhere in a name, in linear time. Raises BadPattern."""
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise BadPattern(f"{quoted(pattern)}, which has {len(pattern)} characters; {MAX_PATTERN_LENGTH} are allowed")
    try:
        program = re2.compile(pattern.encode(), _OPTIONS)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        raise BadPattern(f"{quoted(pattern)}, which is not a regular expression of Go: {reason}") from None
    if program.programsize > _MAX_INSTRUCTIONS:
        raise BadPattern(f"{quoted(pattern)}, whose repetitions make it too large: lower their numbers")
    search = program.search
    return lambda name: search(name.encode()) is not None


def hyper_node_trees(
    hyper_nodes: Iterable[HyperNode],
    nodes_of: Callable[[MemberSelector], Iterable[str]],
    members_of: Callable[[MemberSelector], Iterable[str]],
) -> list[TopologyTree]:
    """Returns the trees; none without HyperNodes. Raises BadHyperNodes.

    `nodes_of` and `members_of` return the names of nodes and of HyperNodes that a selector selects; those that it
    names need not exist.
    """
    by_name = {each.name: each for each in sorted(hyper_nodes, key=lambda each: each.name)}
    if not by_name:
        return []
    for each in by_name.values():
        if each.problem:
            raise BadHyperNodes(each.problem, each.reference)
    parents = _parents(by_name, members_of)
    homes = _homes(by_name, parents, nodes_of)
    given = [each.tier for each in by_name.values()]
    tiers = range(max(given), min(1, *given) - 1, -1)
    domains, leaves = _domains(by_name, parents, homes, tiers)
    definition = next(iter(by_name.values())).reference
    levels = [tuple(map(TreeLevel, (*map(tier_level, tiers), NODE_LEVEL)))]
    if any(each.tier_name for each in by_name.values()):
        levels.append(tuple(map(TreeLevel, (*_tier_names(by_name, tiers), NODE_LEVEL))))
    names = (BY_TIER, BY_TIER_NAME)
    return [
        TopologyTree(name, each, domains, leaves, definition=definition)
        for name, each in zip(names, levels, strict=False)
    ]


def absent_members(hyper_nodes: Iterable[HyperNode], nodes: Collection[str]) -> list[Problem]:
    """Warnings about HyperNodes that name nodes which do not exist, each about its object; of many, the first ones."""
    problems = []
    for each in sorted(hyper_nodes, key=lambda each: each.name):
        absent = sorted({member.name for member in each.members if member.of_nodes and member.name}.difference(nodes))
        if absent:
            more = f" and {len(absent) - _MOST_NAMED} more" if len(absent) > _MOST_NAMED else ""
            names = f"{', '.join(map(quoted, absent[:_MOST_NAMED]))}{more}"
            message = f"HyperNode {quoted(each.name)} has members that are no nodes of the cluster: {names}"
            problems.append(
                Problem(Severity.WARNING, f"{message}; they are ignored until they are", about=each.reference)
            )
    return problems[:_MOST_REPORTED]


def unused_tier_names(hyper_nodes: Iterable[HyperNode]) -> list[Problem]:
    """Warnings about tiers whose name is not that of a level, each about the HyperNode that has to be changed."""
    names: dict[int, HyperNode] = {}
    problems: dict[int, Problem] = {}
    for each in sorted(hyper_nodes, key=lambda each: (-each.tier, each.name)):
        if not each.tier_name or each.tier in problems:
            continue
        first = names.setdefault(each.tier, each)
        above = next(
            (one for tier, one in names.items() if tier != each.tier and one.tier_name == each.tier_name), None
        )
        if first.tier_name != each.tier_name:
            why = f"but HyperNode {quoted(first.name)} of the tier has {quoted(first.tier_name)}"
        elif above is not None:
            why = f"which is that of tier {above.tier}, too"
        elif not is_level_name(each.tier_name) or each.tier_name == NODE_LEVEL:
            why = "which no level can have as its name"
        else:
            continue
        given = f"tierName of HyperNode {quoted(each.name)} of tier {each.tier} is {quoted(each.tier_name)}, {why}"
        message = f"{given}: the level is called {tier_level(each.tier)}; give each tier one name of its own"
        problems[each.tier] = Problem(Severity.WARNING, message, about=each.reference)
    return list(problems.values())


def _parents(
    by_name: Mapping[str, HyperNode], members_of: Callable[[MemberSelector], Iterable[str]]
) -> dict[str, HyperNode]:
    parents: dict[str, HyperNode] = {}
    for parent in by_name.values():
        for selector in parent.members:
            if selector.of_nodes:
                continue
            for name in members_of(selector):
                member = by_name.get(name)
                where = f"HyperNode {quoted(parent.name)} has the member HyperNode {quoted(name)}"
                if member is None:
                    raise BadHyperNodes(f"{where}, which does not exist: create it, or remove it", parent.reference)
                other = parents.get(name)
                if other is not None and other.name != parent.name:
                    both = f"{where}, and so has {quoted(other.name)}"
                    raise BadHyperNodes(f"{both}: a HyperNode may be a member of one other only", parent.reference)
                parents[name] = parent
    _check_cycles(by_name, parents)
    for name, parent in parents.items():
        if parent.tier <= (tier := by_name[name].tier):
            where = (
                f"HyperNode {quoted(parent.name)} of tier {parent.tier} has the member {quoted(name)} of tier {tier}"
            )
            raise BadHyperNodes(f"{where}: its members must have lower tiers", parent.reference)
    return parents


def _check_cycles(by_name: Mapping[str, HyperNode], parents: Mapping[str, HyperNode]) -> None:
    checked = set[str]()
    for first in by_name:
        path: dict[str, None] = {}
        at = first
        while at not in checked and at not in path:
            path[at] = None
            if at not in parents:
                break
            at = parents[at].name
        else:
            if at in path:
                names = [*path]
                cycle = [*names[names.index(at) :], at]
                shown = " > ".join(map(quoted, reversed(cycle[-_MOST_NAMED:])))
                more = f" ({len(cycle) - 1} in all)" if len(cycle) > _MOST_NAMED else ""
                message = f"HyperNodes are members of each other: {shown}{more}; remove one of them"
                raise BadHyperNodes(message, by_name[at].reference)
        checked.update(path)


def _homes(
    by_name: Mapping[str, HyperNode],
    parents: Mapping[str, HyperNode],
    nodes_of: Callable[[MemberSelector], Iterable[str]],
) -> dict[str, HyperNode]:
    """The lowest HyperNode of each node."""
    homes: dict[str, HyperNode] = {}
    for hyper_node in sorted(by_name.values(), key=lambda each: (each.tier, each.name)):
        for selector in hyper_node.members:
            if not selector.of_nodes:
                continue
            for node in nodes_of(selector):
                lower = homes.setdefault(node, hyper_node)
                if lower is hyper_node or any(each is hyper_node for each in _ancestors(lower, parents)):
                    continue
                both = f"node {quoted(node)} is a member of {quoted(lower.name)} and of {quoted(hyper_node.name)}"
                raise BadHyperNodes(
                    f"HyperNodes overlap: {both}, of which none is a member of the other: remove it",
                    hyper_node.reference,
                )
    return homes


def _ancestors(hyper_node: HyperNode, parents: Mapping[str, HyperNode]) -> list[HyperNode]:
    """The HyperNode and those that it is in, from below."""
    found, at = [hyper_node], parents.get(hyper_node.name)
    while at is not None:
        found.append(at)
        at = parents.get(at.name)
    return found


def _domains(
    by_name: Mapping[str, HyperNode],
    parents: Mapping[str, HyperNode],
    homes: Mapping[str, HyperNode],
    tiers: Sequence[int],
) -> tuple[tuple[TreeDomain, ...], tuple[tuple[str, int], ...]]:
    chains = {name: _ancestors(each, parents) for name, each in by_name.items()}
    found: dict[TreeDomain, int] = {}
    leaves = []
    for node, home in sorted(homes.items()):
        at = -1
        for level, tier in enumerate(tiers):
            name = next((each.name for each in reversed(chains[home.name]) if each.tier <= tier), node)
            at = found.setdefault(TreeDomain(name, level, at), len(found))
        leaves.append((node, at))
    return tuple(found), tuple(leaves)


def _tier_names(by_name: Mapping[str, HyperNode], tiers: Iterable[int]) -> list[str]:
    """Names of the levels: the tier's name if its HyperNodes agree on one that can be used, else as by tier."""
    given: dict[int, set[str]] = {}
    for each in by_name.values():
        if each.tier_name:
            given.setdefault(each.tier, set()).add(each.tier_name)
    names: list[str] = []
    for tier in tiers:
        of_tier = given.get(tier, set())
        name = next(iter(of_tier)) if len(of_tier) == 1 else ""
        usable = is_level_name(name) and name != NODE_LEVEL and name not in names
        names.append(name if usable else tier_level(tier))
    return names
