"""Random clusters with labels, taints, inter-pod rules, trees and constraints combined.

The checker decides what is safe; whether a small gang fits is decided by trying every division of it over the nodes.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Final

from msgspec.structs import replace

from muster.conformance.builders import ZONE, bound, pod_class, single_gang
from muster.conformance.case import Cases, Expected, Failed, Feature, Unsafe
from muster.conformance.case_run import CaseRun, not_placed, placed
from muster.conformance.checker.filters import filter_reason
from muster.conformance.checker.inter_pod_rules import inter_pod_violation
from muster.conformance.checker.node_usage import NodeUsage
from muster.conformance.checker.responses import INFEASIBLE, PLACED, violations
from muster.conformance.checker.topology import violated_constraints
from muster.conformance.cluster import Cluster
from muster.conformance.random_clusters import (
    random_class,
    random_cluster,
    random_constraints,
    random_gangs,
    random_group,
    random_request_fields,
    random_tree,
)
from muster.gangs.facts import Batch, PodClass
from muster.placement.v1 import placement_pb2 as pb

SAFETY: Final = Cases()
COMPLETENESS: Final = Cases()
TOPOLOGY: Final = Cases()


@SAFETY.case("S40", "No answer on random clusters with taints, labels and inter-pod rules is unsafe", random=True)
async def inter_pod_rules(run: CaseRun) -> None:
    for seed in range(60):
        random = Random(seed)  # noqa: S311 (the same in every run)
        cluster = random_cluster(random, nodes=random.randint(2, 8), classes=4)
        await run.start(cluster)
        listed = list(cluster.classes.values())
        for _ in range(2):
            groups = [random_group(random, listed, f"g{index}") for index in range(random.randint(1, 3))]
            await run.solve(*groups)


@SAFETY.case("S41", "No answer on random trees with random hard and soft constraints is unsafe", random=True)
async def constraints_at_random(run: CaseRun) -> None:
    for seed in range(60):
        random = Random(seed)  # noqa: S311 (the same in every run)
        x, y = pod_class(1), pod_class(random.choice((1, 2)), memory=5)
        cluster = random_tree(random, [x, y], most=6)
        await run.start(cluster)
        for _ in range(3):
            constraints = random_constraints(random, hard=0.5)
            roles = [(x, random.randint(1, 9)), (y, random.randint(1, 4))][: random.randint(1, 2)]
            members = sum(count for _, count in roles)
            minimum = random.choice((members, random.randint(1, members)))
            try:
                await run.solve_one(single_gang(*roles, minimum=minimum, constraints=constraints))
            except Unsafe:
                raise
            except Failed:  # contradictory constraints are rejected, which is safe
                continue


@SAFETY.case("S42", "No answer on random clusters with all features combined is unsafe", random=True)
async def everything_at_once(run: CaseRun) -> None:
    for seed in range(60):
        random = Random(seed)  # noqa: S311 (the same in every run)
        classes = list({each.id: each for each in (random_class(random) for _ in range(3))}.values())
        cluster = random_tree(random, classes, most=5)
        for name, machine in cluster.nodes.items():
            zone = {ZONE: random.choice("xy")} if random.random() < 0.9 else {}
            cluster.nodes[name] = replace(machine, labels={**machine.labels, **zone})
        for name in list(cluster.nodes):
            if random.random() < 0.3:
                cluster.apply(Batch(pods=tuple(bound(random.choice(classes), name, random.randint(1, 2)))))
        await run.start(cluster)
        for _ in range(2):
            groups = [random_gangs(random, cluster, f"g{index}") for index in range(random.choice((1, 1, 2, 3)))]
            try:
                await run.solve(*groups, **random_request_fields(random, cluster, single_group=len(groups) == 1))
            except Unsafe:
                raise
            except Failed:  # contradictory constraints are rejected, which is safe
                continue


@COMPLETENESS.case(
    "C24",
    "Small random gangs with inter-pod rules are placed exactly if they fit",
    Feature.POD_TOPOLOGY,
    random=True,
)
async def small_with_rules(run: CaseRun) -> None:
    for seed in range(80):
        random = Random(seed)  # noqa: S311 (the same in every run)
        cluster = random_cluster(random, nodes=random.randint(2, 4), classes=2)
        one = random.choice(list(cluster.classes.values()))
        await run.start(cluster)
        count = random.randint(2, 5)
        result = await run.solve_one(single_gang((one, count)))
        machines = sorted(cluster.nodes)
        _check(result, count, any(_possible(cluster, one, each) for each in _divisions(count, machines)), seed)


@TOPOLOGY.case(
    "T40",
    "Small gangs with random hard constraints are placed exactly if they fit",
    Feature.CONSTRAINTS,
    random=True,
)
async def small_with_constraints(run: CaseRun) -> None:
    x = pod_class(1)
    for seed in range(80):
        random = Random(seed)  # noqa: S311 (the same in every run)
        cluster = random_tree(random, [x], most=3)
        constraints, count = random_constraints(random, hard=0.8), random.randint(2, 6)
        await run.start(cluster)
        divisions = [each for each in _divisions(count, sorted(cluster.nodes)) if _possible(cluster, x, each)]
        feasible = any(not violated_constraints(cluster, "", constraints, each) for each in divisions)
        group = single_gang((x, count), constraints=constraints)
        try:
            result = await run.solve_one(group)
        except Unsafe:
            raise
        except Failed as error:
            if feasible:
                message = f"seed {seed}: {count} members fit with {constraints}; {error}"
                raise Failed(message, Expected(placed=True, members=count)) from None
            continue
        _check(result, count, feasible, seed)


@TOPOLOGY.case(
    "T41",
    "Small gangs of two roles with inter-pod rules and constraints are placed exactly if they fit",
    Feature.CONSTRAINTS,
    Feature.POD_TOPOLOGY,
    random=True,
)
async def small_with_both(run: CaseRun) -> None:
    for seed in range(80):
        random = Random(seed)  # noqa: S311 (the same in every run)
        classes = list({each.id: each for each in (random_class(random), random_class(random))}.values())
        cluster = random_tree(random, classes, most=3)
        if len(cluster.nodes) > 4:
            continue
        for name, machine in cluster.nodes.items():
            cluster.nodes[name] = replace(machine, labels={**machine.labels, ZONE: random.choice("xy")})
        roles = [(each, random.randint(1, 2)) for each in classes]
        group = single_gang(*roles, constraints=random_constraints(random, hard=0.8))
        await run.start(cluster)
        try:
            result = await run.solve_one(group)
        except Unsafe:
            raise
        except Failed as error:
            if _fits(cluster, group):
                raise Failed(f"seed {seed}: the group fits; {error}", Expected(placed=True)) from None
            continue
        _check(result, sum(count for _, count in roles), _fits(cluster, group), seed)


def _fits(cluster: Cluster, group: pb.GangGroup) -> bool:
    """Some division of all members of its gang over nodes is correct (exhaustive)."""
    [gang] = group.gangs
    request = pb.SolveRequest(groups=[group])
    names = sorted(cluster.nodes)
    for divisions in product(*(list(_divisions(role.wanted, names)) for role in gang.roles)):
        result = pb.GroupResult(id=group.id, outcome=PLACED)
        for index, division in enumerate(divisions):
            for name, count in division.items():
                result.assignments.add(gang=gang.id, role=index, node=name, count=count)
        if not violations(cluster, request, pb.SolveResponse(results=[result])):
            return True
    return False


def _check(result: pb.GroupResult, count: int, feasible: bool, seed: int) -> None:
    try:
        if feasible:
            placed(result, count)
        else:
            not_placed(result)
    except Failed as error:
        proved = ", claimed to be proved infeasible" if feasible and result.outcome == INFEASIBLE else ""
        raise Failed(f"seed {seed}: {error}{proved}", error.expected) from None


def _divisions(count: int, machines: Sequence[str]) -> Iterator[Counter[str]]:
    """All divisions of `count` equal members over nodes."""
    if not machines:
        if not count:
            yield Counter()
        return
    for here in range(count + 1):
        for rest in _divisions(count - here, machines[1:]):
            yield rest + Counter({machines[0]: here})


def _possible(cluster: Cluster, one: PodClass, division: Counter[str]) -> bool:
    """Capacity, filters and inter-pod rules allow the division."""
    usage = NodeUsage(cluster, pb.SolveRequest())
    added = Counter({(one.id, name): count for name, count in division.items()})
    if any(filter_reason(one, cluster.nodes[name]) for name in division) or inter_pod_violation(usage, added):
        return False
    usage.pods += added
    return not usage.oversubscribed(added)
