"""Costs of solutions, proofs of optimality, and restricted instances."""

import numpy as np
import pytest

from builders.placement.trees import tree_cluster
from muster.gangs.solve import Role, SolveGang, SolveGroup
from muster.placement.solve.bounds import is_optimal, solution_cost
from muster.placement.solve.constrained import restricted
from muster.placement.solve.instance import ConstrainedGang, Solution, TreeInstance, parts_of, tree_instance
from muster.placement.solve.level_rules import rules_of
from muster.topology.constraints import parse_constraints

TREE = "r0(a:4,b:4) r1(c:4,d:4) r2(e:1,f:1)"


def instance(constraints: str, members: int = 4, tree: str = TREE) -> TreeInstance:
    built = tree_cluster(tree)
    built.state.refresh()
    gang = SolveGang("g", members, (Role("x", members),), "", parse_constraints(constraints))
    by_tree = built.state.trees.get("")
    assert by_tree is not None
    asked = [ConstrainedGang(gang, rules_of(gang.constraints, by_tree.level_names))]
    return tree_instance(built.state, by_tree, asked, parts_of(SolveGroup("g", (gang,))))


def on(where: TreeInstance, **nodes: int) -> Solution:
    rows = [where.state.nodes.row(name) for name in nodes]
    counts = np.array(list(nodes.values()))
    return Solution([int(counts.sum())], [(0, (np.array(rows, np.int64), counts))])


BEST = [
    ("rack: pack; node: pack", {"a": 4}),
    ("rack: pack; node: spread", {"a": 2, "b": 2}),
    ("rack: spread", {"a": 1, "c": 2, "e": 1}),
    ("rack: partition(2)", {"a": 2, "c": 2}),
    ("rack: pack; node: spread, range(1,2), factor(2)", {"a": 2, "b": 2}),
]
NOT_BEST = [
    ("rack: pack", {"a": 2, "c": 2}),
    ("rack: pack; node: spread", {"a": 4}),
    ("rack: pack; node: spread", {"a": 1, "b": 3}),
    ("rack: spread", {"a": 4}),
    ("rack: spread", {"a": 2, "c": 2}),
    ("rack: partition(2)", {"a": 1, "c": 3}),
    ("rack: partition(3)", {"a": 2, "c": 2}),
    ("node: range(3,4)", {"a": 2, "b": 2}),
    ("node: factor(4)", {"a": 2, "b": 2}),
    ("node: pack", {"a": 3}),
]


@pytest.mark.parametrize(("constraints", "nodes"), BEST)
def test_solutions_proved_optimal(constraints: str, nodes: dict[str, int]) -> None:
    where = instance(constraints)
    assert is_optimal(where, on(where, **nodes))


@pytest.mark.parametrize(("constraints", "nodes"), NOT_BEST)
def test_solutions_not_proved_optimal(constraints: str, nodes: dict[str, int]) -> None:
    where = instance(constraints)
    assert not is_optimal(where, on(where, **nodes))


def test_members_left_out_outweigh_constraints() -> None:
    where = instance("rack: pack; node: pack")
    assert solution_cost(where, on(where, a=2, c=1, e=1)) < solution_cost(where, on(where, a=3))


def test_a_restricted_instance_has_the_tightest_domain() -> None:
    tree = " ".join(f"r{rack}({','.join(f'n{rack}{i}:{rack}' for i in range(4))})" for rack in range(1, 8))
    where = instance("rack: pack", members=12, tree=tree)
    some = restricted(where, 8)
    names = {where.state.nodes.name(int(where.tree.rows[at])) for at in np.flatnonzero(some.fits.any(axis=0))}
    assert len(names) == 8
    assert sum(name.startswith("n3") for name in names) >= 2
    assert where.complete
    assert not some.complete
