"""Random small groups with composites, and an oracle that finds by enumeration whether they have a placement."""

from collections.abc import Iterable, Sequence
from random import Random

from builders.placement.clusters import node, pod_class
from builders.placement.optimum import Case, Evaluator, Sizes, added_members, all_sizes, domain_paths
from builders.placement.small_instances import random_tree
from muster.gangs.facts import LevelConstraint, LevelPolicy, TopologyTree
from muster.gangs.solve import Composite, Role, SolveGang, SolveGroup
from muster.placement.solve.instance import Placed


def random_composites(number: int) -> Case:
    """Case `number`: up to 4 nodes, 4 gangs of up to 3 members, and 3 composites, nested or not."""
    chance = Random(f"composites {number}")
    while True:
        case = _case(chance)
        if all(_below(case.group, index) for index in range(len(case.group.composites))):
            return case


def _case(chance: Random) -> Case:
    classes = [pod_class("x"), pod_class("y", 2)][: chance.choice((1, 1, 2))]
    nodes = [node(f"n{index}", chance.randint(0, 4)) for index in range(chance.randint(2, 4))]
    tree = random_tree(chance, [each.name for each in nodes], chance.choice((2, 2, 3)))
    composites = [Composite(0, parent=chance.randint(-1, index - 1)) for index in range(chance.randint(1, 3))]
    gangs = [
        _gang(chance, index, [each.id for each in classes], tree, len(composites))
        for index in range(chance.randint(1, 4 if len(classes) == 1 else 2))
    ]
    levels = ["", "", *(level.name for level in tree.levels)]
    completed = []
    for index, each in enumerate(composites):
        children = sum(gang.composite == index for gang in gangs) + sum(other.parent == index for other in composites)
        completed.append(
            Composite(
                children if chance.random() < 0.5 else chance.randint(0, children),
                each.parent,
                chance.choice((0, 0, 0, 2, 4)),
                chance.choice(levels),
                placed=(chance.choice(nodes).name,) if chance.random() < 0.1 else (),
            )
        )
    return Case(nodes, classes, SolveGroup("g", tuple(gangs), composites=tuple(completed)), (tree,))


def _gang(chance: Random, index: int, classes: Sequence[str], tree: TopologyTree, composites: int) -> SolveGang:
    roles = tuple(Role(each, chance.randint(1, 3 if len(classes) == 1 else 2)) for each in classes)
    wanted = sum(role.wanted for role in roles)
    minimum = wanted if chance.random() < 0.6 else chance.randint(1, wanted)
    level = chance.choice(["", "", *(level.name for level in tree.levels)])
    constraints = (LevelConstraint(level, LevelPolicy.PACK, hard=chance.random() < 0.7),) if level else ()
    return SolveGang(f"g{index}", minimum, roles, "", constraints, composite=chance.randint(-1, composites - 1))


def has_placement(case: Case) -> bool:
    """Some placement of at least one member is valid."""
    return any(any(map(any, added)) and not _problems(case, added) for added in all_sizes(case))


def problems_of(case: Case, answer: Placed) -> list[str]:
    """Violations in an answer."""
    return _problems(case, added_members(case, answer))


def _problems(case: Case, added: Sizes) -> list[str]:
    group, found = case.group, []
    placed = [sum(sizes) for sizes in added]
    for index, gang in enumerate(group.gangs):
        if not placed[index]:
            continue
        if placed[index] < gang.minimum:
            found.append(f"gang {gang.id} has {placed[index]} of {gang.minimum} members")
        if Evaluator(case, index).cost(added[index]) is None:
            found.append(f"gang {gang.id} violates a constraint")
    complete = [False] * len(group.composites)
    for index in reversed(range(len(group.composites))):
        each = group.composites[index]
        below = _below(group, index)
        children = sum(placed[at] > 0 for at, gang in enumerate(group.gangs) if gang.composite == index)
        children += sum(complete[at] for at, other in enumerate(group.composites) if other.parent == index)
        members = sum(placed[at] for at in below)
        whole = children >= each.minimum and members >= each.minimum_members
        shared = _share_domain(case, each, [added[at] for at in below])
        complete[index] = whole and shared
        if members and not complete[index]:
            found.append(f"composite {index} has {children} children and {members} members, in one domain: {shared}")
    found += [
        f"composite {at} is missing" for at, c in enumerate(group.composites) if c.parent < 0 and not complete[at]
    ]
    found += [
        f"gang {gang.id} is missing" for at, gang in enumerate(group.gangs) if gang.composite < 0 and not placed[at]
    ]
    return found


def _below(group: SolveGroup, index: int) -> list[int]:
    inside = {index}
    for at, each in enumerate(group.composites):
        if each.parent in inside:
            inside.add(at)
    return [at for at, gang in enumerate(group.gangs) if gang.composite in inside]


def _share_domain(case: Case, composite: Composite, members: Iterable[Sequence[int]]) -> bool:
    if not composite.level:
        return True
    [tree] = case.trees
    depth = [level.name for level in tree.levels].index(composite.level) + 1
    paths = domain_paths(tree, case.nodes)
    used = {case.nodes[at].name for sizes in members for at, count in enumerate(sizes) if count}
    if any(paths[name] is None for name in used):
        return False
    names = used | set(composite.placed) if used else used
    return len({path[:depth] if (path := paths[name]) is not None else (name,) for name in names}) <= 1
