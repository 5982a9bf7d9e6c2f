"""Random small groups under random constraints, reproducible by number, and the solver's answers."""

from collections.abc import Sequence
from random import Random
from typing import Literal

from builders.placement.clusters import group, node, pod_class
from builders.placement.labels import LabelledCluster
from builders.placement.optimum import Case
from muster.gangs.facts import (
    Batch,
    LevelConstraint,
    LevelPolicy,
    NodeFacts,
    PodClass,
    PodFacts,
    TopologyTree,
    TreeDomain,
    TreeLevel,
)
from muster.gangs.solve import PodsOnNode, Role, SolveGang, SolveGroup
from muster.placement.solve.instance import Answer
from muster.placement.solve.solve import solve
from muster.placement.state.cluster import Cluster

Kind = Literal["equal", "mixed", "group"]
KINDS: tuple[Kind, ...] = ("equal", "mixed", "group")

_MOST_NODES = {"equal": 8, "mixed": 7, "group": 4}
_MOST_MEMBERS = {"equal": 9, "mixed": 8, "group": 4}  # members of each gang
_LEVELS = {1: ("node",), 2: ("rack", "node"), 3: ("zone", "rack", "node")}
_SHAPES = (None, LevelPolicy.PACK, LevelPolicy.PACK, LevelPolicy.SPREAD, LevelPolicy.SPREAD, LevelPolicy.PARTITION)


def random_case(number: int, kind: Kind) -> Case:
    """Case `number` of a kind: up to 8 nodes on up to 3 levels, up to 9 members, and often scarce capacity."""
    chance = Random(f"{kind} {number}")
    classes = _classes(chance, kind)
    nodes = [_node(chance, index, kind) for index in range(chance.randint(2, _MOST_NODES[kind]))]
    tree = random_tree(chance, [each.name for each in nodes])
    asked = _group(chance, kind, classes, nodes, tree)
    return Case(nodes, classes, asked, (tree,))


def build(case: Case) -> Cluster:
    """A cluster of the case's nodes and trees. Members placed earlier do not use the nodes' capacity."""
    built = LabelledCluster()
    classes = {each.id: each for each in case.classes}
    extra: dict[str, dict[str, int]] = {}
    pods = []
    for gang in case.group.gangs:
        for placed in gang.placed:
            for number in range(placed.count):
                uid = f"{gang.id}/{placed.node}/{placed.class_id}/{number}"
                pods.append(PodFacts(uid, "default", uid, placed.class_id, node=placed.node))
            held = extra.setdefault(placed.node, {})
            for name, amount in classes[placed.class_id].requests:
                held[name] = held.get(name, 0) + amount * placed.count
    nodes = tuple(_with_more(each, extra.get(each.name, {})) for each in case.nodes)
    built.apply(Batch(pod_classes=tuple(case.classes), nodes=nodes, pods=tuple(pods), trees=tuple(case.trees)))
    return built


def answer_to(case: Case) -> Answer:
    """The solver's answer."""
    built = build(case)
    built.state.refresh()
    [answer] = solve(built.state, [case.group])
    built.state.rollback(0)
    return answer


def random_tree(chance: Random, nodes: Sequence[str], depth: int | None = None) -> TopologyTree:
    """A tree with listed domains, of 1 to 3 levels, over all but a few nodes."""
    depth = depth or chance.choice((1, 2, 2, 3))
    levels = tuple(TreeLevel(name) for name in _LEVELS[depth])
    if depth == 1:
        return TopologyTree("small", levels, default=True)
    domains: list[TreeDomain] = []
    parents = [-1]
    for level in range(depth - 1):
        count = chance.randint(1, 3)
        first = len(domains)
        domains += [TreeDomain(f"{_LEVELS[depth][level]}{i}", level, chance.choice(parents)) for i in range(count)]
        parents = list(range(first, len(domains)))
    leaves = tuple((name, chance.choice(parents)) for name in nodes if chance.random() < 0.97)
    return TopologyTree("small", levels, tuple(domains), leaves, default=True)


def constraints_that_can_be_met(
    chance: Random, tree: TopologyTree, minimum: int, wanted: int, largest: int = 3
) -> tuple[LevelConstraint, ...]:
    """Constraints of some levels that do not contradict one another; ranges begin at `largest` at most."""
    while True:
        found: list[LevelConstraint] = []
        for level in tree.levels:
            if chance.random() < 0.8:
                found += _of_level(chance, level.name, wanted, largest)
        if all(_can_be_met(each, found, minimum, wanted) for each in found):
            return tuple(found)


def _of_level(chance: Random, level: str, wanted: int, largest: int) -> list[LevelConstraint]:
    found = []
    shape = chance.choice(_SHAPES)
    if shape is not None:
        count = chance.randint(2, 4) if shape == LevelPolicy.PARTITION else 0
        found.append(LevelConstraint(level, shape, chance.random() < 0.25, count=count))
    if chance.random() < 0.25:
        least = chance.randint(1, largest)
        most = chance.randint(least, max(least, wanted))
        found.append(LevelConstraint(level, LevelPolicy.RANGE, chance.random() < 0.3, minimum=least, maximum=most))
    if chance.random() < 0.2:
        found.append(LevelConstraint(level, LevelPolicy.FACTOR, chance.random() < 0.3, count=chance.randint(2, 3)))
    return found


def _can_be_met(each: LevelConstraint, others: Sequence[LevelConstraint], minimum: int, wanted: int) -> bool:
    """The constraint contradicts no other of its level and, if hard, some number of members satisfies it."""
    beside = {other.policy: other for other in others if other.level == each.level}
    numbers = range(minimum, wanted + 1)
    if each.policy == LevelPolicy.PARTITION:
        return not each.hard or each.count <= wanted
    if each.policy == LevelPolicy.FACTOR:
        return not each.hard or any(number % each.count == 0 for number in numbers)
    if each.policy == LevelPolicy.RANGE:
        factor = beside.get(LevelPolicy.FACTOR)
        if factor is not None and each.maximum // factor.count * factor.count < each.minimum:
            return False
        return not each.hard or any(-(-number // each.maximum) * each.minimum <= number for number in numbers)
    return True


def _classes(chance: Random, kind: Kind) -> list[PodClass]:
    if kind == "equal":
        return [pod_class("x")]
    return [
        pod_class(name, chance.randint(1, 4), memory=chance.choice((0, 0, 1, 2, 3)))
        for name in "xyz"[: chance.randint(2, 3)]
    ]


def _node(chance: Random, index: int, kind: Kind) -> NodeFacts:
    most = 5 if kind == "equal" else 12
    return node(f"n{index}", chance.randint(0, most), memory=chance.randint(0, 9))


def _group(
    chance: Random, kind: Kind, classes: Sequence[PodClass], nodes: Sequence[NodeFacts], tree: TopologyTree
) -> SolveGroup:
    gangs = []
    for index in range(2 if kind == "group" else 1):
        wanted = chance.randint(1, _MOST_MEMBERS[kind])
        of_each = [0] * len(classes)
        for _ in range(wanted):
            of_each[chance.randrange(len(classes))] += 1
        roles = tuple(Role(each.id, count) for each, count in zip(classes, of_each, strict=True) if count)
        minimum = wanted if chance.random() < 0.6 else chance.randint(1, wanted)
        placed: tuple[PodsOnNode, ...] = ()
        if chance.random() < 0.2:
            placed = (PodsOnNode(chance.choice(nodes).name, classes[0].id, chance.randint(1, 2)),)
        constraints = constraints_that_can_be_met(chance, tree, minimum, wanted)
        while not index and not constraints:
            constraints = constraints_that_can_be_met(chance, tree, minimum, wanted)
        gangs.append(SolveGang(f"g{index}", minimum, roles, "", constraints, placed))
    return group(*gangs)


def _with_more(each: NodeFacts, held: dict[str, int]) -> NodeFacts:
    if not held:
        return each
    offered = dict(each.allocatable)
    for name, amount in held.items():
        offered[name] = offered.get(name, 0) + amount
    return NodeFacts(each.name, allocatable=tuple(sorted(offered.items())), labels=each.labels, taints=each.taints)
