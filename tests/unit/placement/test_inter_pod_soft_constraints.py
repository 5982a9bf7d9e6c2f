"""Soft constraints never prevent a placement: groups that fit without them fit with them."""

import random

import pytest

from builders.placement.clusters import answers, cluster, pod_class
from builders.placement.inter_pod_rules import HOST, RACK, ZONE, anti_affinity, member, rack, spread
from builders.placement.large_instances import dynamic_programme_cost, random_larger_case
from builders.placement.small_instances import answer_to
from muster.gangs.facts import Batch, LevelConstraint, NodeFacts, TopologyTree, TreeLevel
from muster.gangs.solve import Role, SolveGang, SolveGroup
from muster.placement.solve.instance import NotPlaced, Placed
from muster.placement.state.cluster import Cluster
from muster.topology.constraints import contradictions, parse_constraints

TREE = TopologyTree("racks", (TreeLevel("zone", ZONE), TreeLevel("rack", RACK), TreeLevel("node")), default=True)
LEVELS = ("zone", "rack", "node")


@pytest.mark.parametrize("seed", [198, 342, 430, 627, 640, 717, 1015, 1409, 1696, 1721, *range(40)])
def test_soft_constraints_never_prevent_a_placement(seed: int) -> None:
    rng = random.Random(seed)
    kinds = [member(**rng.choice(({}, {}, anti_affinity(HOST), spread(RACK), spread(HOST)))), pod_class("y", 2)]
    on = cluster(_nodes(rng), kinds)
    on.apply(Batch(trees=(TREE,)))
    roles = (Role("x", rng.randint(1, 60)), Role("y", rng.randint(1, 60)))
    minimum = roles[0].wanted + roles[1].wanted - rng.randint(0, 2)
    constraints = _constraints(rng)
    if contradictions(constraints, LEVELS, minimum, minimum + 2):
        return
    if isinstance(_answer(on, roles, minimum, ()), Placed):
        assert isinstance(_answer(on, roles, minimum, constraints), Placed)


def _answer(on: Cluster, roles: tuple[Role, ...], minimum: int, constraints: tuple[LevelConstraint, ...]) -> object:
    [answer] = answers(on, SolveGroup("g", (SolveGang("g", minimum, roles, "", constraints),)))
    return answer


def _nodes(rng: random.Random) -> list[NodeFacts]:
    found = []
    for zone in range(rng.randint(1, 3)):
        for number in range(rng.randint(1, 12)):
            nodes = {f"n{zone}-{number}-{each}": rng.randint(0, 6) for each in range(rng.randint(1, 5))}
            found += rack(f"r{zone}-{number}", nodes, zone=f"z{zone}")
    return found


def _constraints(rng: random.Random) -> tuple[LevelConstraint, ...]:
    low = rng.randint(1, 2)
    policies = ("pack", "spread", f"partition({rng.randint(1, 4)})", f"range({low},{low + 3})", f"factor({low + 1})")
    levels = [level for level in LEVELS if rng.random() < 0.6] or ["rack"]
    return parse_constraints("; ".join(f"{level}: {rng.choice(policies)}" for level in levels))


def test_a_hard_partition_within_racks_is_per_rack() -> None:
    """Soft constraints of a level above define the domains in which a hard shape applies."""
    case = random_larger_case(493)  # rack: pack, factor(2); node: hard partition(4)
    assert dynamic_programme_cost(case) is not None
    answer = answer_to(case)
    assert isinstance(answer, Placed) or (isinstance(answer, NotPlaced) and not answer.proved)
