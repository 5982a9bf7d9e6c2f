"""Composites of a solve request: of gangs with subgroups and of gangs in composites, and the check of answers against
them.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from muster.coordinator.core.cache.nodes import TopologyTrees
from muster.coordinator.core.gang.composite_trees import composites_of, has_started, root_to_start, started_children
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.gang.subgroups import NO_POLICY, Attempt, Subgroup
from muster.gangs.facts import LevelConstraint, LevelPolicy, NodeFacts, PodFacts
from muster.gangs.solve import Composite, PodsOnNode, Role, SolveGang, SolveGroup
from muster.topology.constraints import on_levels
from muster.topology.ranks import Path


class Domain(NamedTuple):
    """The level of a tree of which members share one domain; without a level they need not. `others` are the other
    constraints.
    """

    tree: str
    level: str
    others: tuple[LevelConstraint, ...]

    @property
    def of_parts(self) -> "Domain":
        """What holds for parts of the members, too: soft constraints."""
        return Domain(self.tree, "", tuple(each for each in self.others if not each.hard))


def domain_of(trees: TopologyTrees, tree: str, constraints: tuple[LevelConstraint, ...]) -> Domain:
    """The domain that constraints ask for: the lowest hard pack on the levels of the tree as it is now."""
    known = trees.get(tree)
    levels = known.level_names if known is not None else []
    there = on_levels(constraints, levels)
    packs = [each for each in there if each.hard and each.policy is LevelPolicy.PACK]
    level = max((each.level for each in packs if each.level in levels), key=levels.index, default="")
    return Domain(tree, level, tuple(each for each in there if each not in packs))


def subgroups_to_place(
    gang: Gang, attempt: Attempt, trees: TopologyTrees, roles_of: Callable[[Sequence[PodFacts]], tuple[Role, ...]]
) -> tuple[list[SolveGang], list[Composite]]:
    """The subgroups of an attempt as gangs of a solve request, and their composites, parents first."""
    facts = gang.facts
    assert facts is not None
    whole = domain_of(trees, facts.tree, gang.constraints)
    domains = {NO_POLICY: whole.of_parts}
    for index, policy in enumerate(facts.subgroups):
        own = domain_of(trees, policy.tree, policy.constraints)
        domains[index] = own if policy.constraints else whole.of_parts
    policies = dict.fromkeys(each.policy for each, _ in attempt.subgroups)
    all_needed = (
        not attempt.later
        and not attempt.members
        and all(
            attempt.needed.get(index, 0) == sum(each.policy == index for each, _ in attempt.subgroups)
            for index in policies
        )
    )
    levels = [whole.level, *(domains[index].level for index in policies)]
    flat = all_needed and not any(levels)
    held = sorted(_nodes_held(gang)) if whole.level else []
    composites: list[Composite] = []
    parents: dict[int, int] = dict.fromkeys(policies, -1 if flat else 0)
    if not flat:
        children = 1 if attempt.later else len(attempt.subgroups) if all_needed else len(policies)
        composites.append(Composite(children, -1, attempt.members, whole.level, whole.tree, tuple(held)))
        for index in policies if not (attempt.later or all_needed) else ():
            parents[index] = len(composites)
            composites.append(Composite(attempt.needed.get(index, 0), 0))
    gangs = []
    avoided = tuple(sorted(gang.bind.avoided_nodes))
    for each, minimum in attempt.subgroups:
        domain, parent = domains[each.policy], parents[each.policy]
        if domain.level:
            nodes = tuple(sorted({node for node, _ in each.held}))
            composites.append(Composite(1, parent, 0, domain.level, domain.tree, nodes))
            parent = len(composites) - 1
        placed = _placed(each) if domain.others else ()
        roles = roles_of(each.pending)
        gangs.append(SolveGang(each.id, minimum, roles, domain.tree, domain.others, placed, avoided, parent))
    return gangs, composites


def in_composites(
    group_id: str, gangs: Sequence[Gang], requested: Sequence[SolveGang], known: Mapping[str, Gang]
) -> SolveGroup:
    """The request of gangs that start together and share domains. Gangs that have started fix the domains of theirs,
    and are children that need not be placed.
    """
    first = gangs[0]
    started = started_children(first, known)
    root = None if has_started(first) else root_to_start(first, started)
    held = _nodes_by_composite(gangs, known)
    at: dict[str, int] = {}
    composites: list[Composite] = []
    parents: list[int] = []
    for gang in gangs:
        parent, starts = -1, False
        for each in composites_of(gang):
            starts = starts or (root is not None and each.name == root.name)
            if each.name not in at:
                at[each.name] = len(composites)
                nodes = tuple(sorted(held.get(each.name, ()))) if each.level else ()
                missing = started.missing(each) if starts else 1  # of one that has started, the next child
                composites.append(Composite(missing, parent, 0, each.level, each.tree, nodes))
            parent = at[each.name]
        parents.append(parent)
    children = Counter((*parents, *(each.parent for each in composites)))
    if not any(each.level or each.minimum < children[index] for index, each in enumerate(composites)):
        return SolveGroup(group_id, tuple(requested))
    placed = tuple(replace(gang, composite=parent) for gang, parent in zip(requested, parents, strict=True))
    return SolveGroup(group_id, placed, composites=tuple(composites))


def _nodes_by_composite(gangs: Sequence[Gang], known: Mapping[str, Gang]) -> dict[str, set[str]]:
    """Nodes of members that have a seat or are bound, by the composites of their gangs."""
    ids = dict.fromkeys(id_ for gang in gangs if gang.facts is not None for id_ in (gang.id, *gang.facts.group))
    nodes: dict[str, set[str]] = {}
    for id_ in ids:
        partner = known.get(id_)
        if partner is None or partner.facts is None or not partner.places:
            continue
        held = _nodes_held(partner)
        for each in partner.facts.composites:
            nodes.setdefault(each.name, set()).update(held)
    return nodes


def _nodes_held(gang: Gang) -> set[str]:
    """Nodes of members that have a seat or are bound."""
    seats = (*gang.unbound_seats, *gang.acknowledged.values())
    return {gang.pods[uid].node for uid in gang.bound} | {seat.node for seat in seats}


def _placed(subgroup: Subgroup) -> tuple[PodsOnNode, ...]:
    return tuple(PodsOnNode(node, class_id, count) for (node, class_id), count in sorted(subgroup.held.items()))


def violated_composite(
    request: SolveGroup, placed: Mapping[str, Counter[str]], trees: TopologyTrees, nodes: Mapping[str, NodeFacts]
) -> str | None:
    """The composite or gang that the placed members violate, in words; None: none. `placed`: members by gang of the
    request and node.

    Gangs have their minimum or, in composites, no members; composites have as many children and members as they need,
    and their members share a domain, with those placed earlier.
    """
    composites = request.composites
    children, members = [0] * len(composites), [0] * len(composites)
    used: list[set[str]] = [set(each.placed) for each in composites]
    for gang in request.gangs:
        on = placed.get(gang.id, _NOWHERE)
        count = on.total()
        if count < gang.minimum and (count or gang.composite < 0):
            return f"it seats {count} of {gang.id}, which needs {gang.minimum}"
        if gang.composite < 0 or not count:
            continue
        children[gang.composite] += 1
        members[gang.composite] += count
        used[gang.composite].update(on)
    for index in range(len(composites) - 1, -1, -1):
        each = composites[index]
        complete = children[index] >= each.minimum and members[index] >= each.minimum_members
        if not complete and (members[index] or each.parent < 0):
            least = f"{each.minimum} subgroups and {each.minimum_members} members"
            return f"it places {children[index]} subgroups with {members[index]} members together, which need {least}"
        if members[index] and not _share_domain(each, used[index], trees, nodes):
            return f"it divides members that share one {each.level} over several"
        if each.parent >= 0:
            children[each.parent] += complete
            members[each.parent] += members[index]
            used[each.parent] |= used[index] - set(each.placed)
    return None


_NOWHERE: Counter[str] = Counter()


def _share_domain(composite: Composite, used: set[str], trees: TopologyTrees, nodes: Mapping[str, NodeFacts]) -> bool:
    if not composite.level:
        return True
    tree = trees.get(composite.tree)
    levels = tree.level_names if tree is not None else []
    if tree is None or composite.level not in levels:
        return False  # the tree changed since
    depth = levels.index(composite.level) + 1
    found: set[Path] = {trees.path(tree, nodes[name])[:depth] for name in used if name in nodes}
    return len(found) == 1
