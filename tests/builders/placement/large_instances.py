"""Random heterogeneous gangs under constraints, too large for enumeration, and their optimal cost."""

from random import Random

from builders.placement.clusters import group, node, pod_class
from builders.placement.optimum import Case, Cost, cost_of
from builders.placement.small_instances import build, constraints_that_can_be_met
from muster.gangs.facts import TopologyTree, TreeDomain, TreeLevel
from muster.gangs.solve import Role, SolveGang
from muster.placement.solve.branch_and_bound import Budget
from muster.placement.solve.dynamic_programme import DynamicProgramme
from muster.placement.solve.instance import (
    ConstrainedGang,
    Placed,
    assignments_of,
    parts_of,
    reserve_again,
    tree_instance,
)
from muster.placement.solve.level_rules import rules_of
from muster.placement.solve.tables import best_cell

_LEVELS = {2: ("rack", "node"), 3: ("zone", "rack", "node")}


def random_larger_case(number: int) -> Case:
    """Case `number`: 12 to 40 nodes, 12 to 32 members of two or three classes, 2 or 3 levels; reproducible."""
    chance = Random(f"larger {number}")
    classes = [
        pod_class(name, chance.randint(1, 4), memory=chance.choice((0, 1, 2, 4)))
        for name in "xyz"[: chance.randint(2, 3)]
    ]
    nodes = [
        node(f"n{index:02}", chance.randint(0, 16), memory=chance.randint(0, 16))
        for index in range(chance.randint(12, 40))
    ]
    tree = _tree(chance, [each.name for each in nodes])
    wanted = chance.randint(12, 32)
    cuts = sorted(chance.randint(0, wanted) for _ in classes[1:])
    of_each = [end - start for start, end in zip([0, *cuts], [*cuts, wanted], strict=True)]
    roles = tuple(Role(each.id, count) for each, count in zip(classes, of_each, strict=True) if count)
    minimum = wanted if chance.random() < 0.6 else chance.randint(wanted // 2, wanted)
    constraints = constraints_that_can_be_met(chance, tree, minimum, wanted, largest=6)
    return Case(nodes, classes, group(SolveGang("g", minimum, roles, "", constraints)), (tree,))


def dynamic_programme_cost(case: Case) -> Cost | None:
    """The optimal cost by a dynamic programme with unlimited budget, whose correctness small cases show."""
    built = build(case)
    state, parts = built.state, parts_of(case.group)
    state.refresh()
    tree = state.trees.get("")
    assert tree is not None
    asked = [ConstrainedGang(gang, rules_of(gang.constraints, tree.level_names)) for gang in case.group.gangs]
    programme = DynamicProgramme(tree_instance(state, tree, asked, parts), Budget(10**9), any_parts=True)
    cell = best_cell(programme.solve(), parts, [gang.minimum for gang in case.group.gangs])
    if cell is None:
        return None
    solution = programme.solution(cell)
    reserve_again(state, parts, solution)
    return cost_of(case, Placed(assignments_of(state, case.group, parts, solution)))


def _tree(chance: Random, nodes: list[str]) -> TopologyTree:
    names = _LEVELS[chance.choice((2, 3))]
    domains: list[TreeDomain] = []
    parents = [-1]
    for level, name in enumerate(names[:-1]):
        first = len(domains)
        count = chance.randint(4, 8) if level else chance.randint(2, 4)
        domains += [TreeDomain(f"{name}{index}", level, chance.choice(parents)) for index in range(count)]
        parents = list(range(first, len(domains)))
    leaves = tuple((each, chance.choice(parents)) for each in nodes)
    return TopologyTree("larger", tuple(map(TreeLevel, names)), tuple(domains), leaves, default=True)
