"""Random clusters with everything at once: labels, taints, rules between pods, trees and constraints. What is safe is
judged by the checker; whether small gangs have a place, by trying every division of them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Final

from msgspec.structs import replace

from muster.conformance.building import ZONE, alone, bound, pod_class
from muster.conformance.case import Cases, Failed, Feature, Unsafe
from muster.conformance.checker.answers import INFEASIBLE, PLACED, violations
from muster.conformance.checker.company import why_no_order
from muster.conformance.checker.filters import why_unusable
from muster.conformance.checker.loads import Loads
from muster.conformance.checker.shape import broken
from muster.conformance.random_worlds import (
    random_class,
    random_constraints,
    random_gangs,
    random_group,
    random_parts,
    random_tree,
    random_world,
)
from muster.conformance.trial import Trial, expect, not_placed, placed
from muster.conformance.world import World
from muster.gangs.facts import Batch, PodClass
from muster.placement.v1 import placement_pb2 as pb

SAFETY: Final = Cases()
COMPLETENESS: Final = Cases()
TOPOLOGY: Final = Cases()


@SAFETY.case("S40", "On random clusters with taints, labels and rules between pods no answer does harm", random=True)
async def random_rules(trial: Trial) -> None:
    for seed in range(60):
        random = Random(seed)  # noqa: S311 (the same in every run)
        made = random_world(random, nodes=random.randint(2, 8), classes=4)
        await trial.given(made)
        listed = list(made.classes.values())
        for _ in range(2):
            groups = [random_group(random, listed, f"g{index}") for index in range(random.randint(1, 3))]
            await trial.ask(*groups)


@SAFETY.case("S41", "On random trees with random constraints, hard and soft, no answer does harm", random=True)
async def constraints_at_random(trial: Trial) -> None:
    for seed in range(60):
        random = Random(seed)  # noqa: S311 (the same in every run)
        x, y = pod_class(1), pod_class(random.choice((1, 2)), memory=5)
        made = random_tree(random, [x, y], most=6)
        await trial.given(made)
        for _ in range(3):
            constraints = random_constraints(random, hard=0.5)
            roles = [(x, random.randint(1, 9)), (y, random.randint(1, 4))][: random.randint(1, 2)]
            wanted = sum(count for _, count in roles)
            minimum = random.choice((wanted, random.randint(1, wanted)))
            try:
                await trial.ask_one(alone(*roles, minimum=minimum, constraints=constraints))
            except Unsafe:
                raise
            except Failed:  # what contradicts itself is refused, which does no harm
                continue


@SAFETY.case("S42", "With everything at once that may be asked, on random clusters, no answer does harm", random=True)
async def everything_at_once(trial: Trial) -> None:
    for seed in range(60):
        random = Random(seed)  # noqa: S311 (the same in every run)
        classes = list({each.id: each for each in (random_class(random) for _ in range(3))}.values())
        made = random_tree(random, classes, most=5)
        for name, machine in made.nodes.items():
            zone = {ZONE: random.choice("xy")} if random.random() < 0.9 else {}
            made.nodes[name] = replace(machine, labels={**machine.labels, **zone})
        for name in list(made.nodes):
            if random.random() < 0.3:
                made.apply(Batch(pods=tuple(bound(random.choice(classes), name, random.randint(1, 2)))))
        await trial.given(made)
        for _ in range(2):
            groups = [random_gangs(random, made, f"g{index}") for index in range(random.choice((1, 1, 2, 3)))]
            try:
                await trial.ask(*groups, **random_parts(random, made, alone_asked=len(groups) == 1))
            except Unsafe:
                raise
            except Failed:  # what contradicts itself is refused, which does no harm
                continue


@COMPLETENESS.case(
    "C24",
    "Small gangs with rules between pods are placed exactly if there is a place",
    Feature.POD_TOPOLOGY,
    random=True,
)
async def small_with_rules(trial: Trial) -> None:
    for seed in range(80):
        random = Random(seed)  # noqa: S311 (the same in every run)
        made = random_world(random, nodes=random.randint(2, 4), classes=2)
        one = random.choice(list(made.classes.values()))
        await trial.given(made)
        count = random.randint(2, 5)
        result = await trial.ask_one(alone((one, count)))
        machines = sorted(made.nodes)
        _judge(result, count, any(_possible(made, one, each) for each in _divisions(count, machines)), seed)


@TOPOLOGY.case(
    "T40",
    "Small gangs with random hard constraints are placed exactly if there is a place",
    Feature.CONSTRAINTS,
    random=True,
)
async def small_with_constraints(trial: Trial) -> None:
    x = pod_class(1)
    for seed in range(80):
        random = Random(seed)  # noqa: S311 (the same in every run)
        made = random_tree(random, [x], most=3)
        constraints, count = random_constraints(random, hard=0.8), random.randint(2, 6)
        await trial.given(made)
        divisions = [each for each in _divisions(count, sorted(made.nodes)) if _possible(made, x, each)]
        feasible = any(not broken(made, "", constraints, each) for each in divisions)
        group = alone((x, count), constraints=constraints)
        try:
            result = await trial.ask_one(group)
        except Unsafe:
            raise
        except Failed as error:
            expect(not feasible, f"seed {seed}: there is a place for {count} with {constraints}; {error}")
            continue
        _judge(result, count, feasible, seed)


@TOPOLOGY.case(
    "T41",
    "Small gangs of two kinds, with rules between pods and constraints, are placed exactly if there is a place",
    Feature.CONSTRAINTS,
    Feature.POD_TOPOLOGY,
    random=True,
)
async def small_with_both(trial: Trial) -> None:
    for seed in range(80):
        random = Random(seed)  # noqa: S311 (the same in every run)
        classes = list({each.id: each for each in (random_class(random), random_class(random))}.values())
        made = random_tree(random, classes, most=3)
        if len(made.nodes) > 4:
            continue
        for name, machine in made.nodes.items():
            made.nodes[name] = replace(machine, labels={**machine.labels, ZONE: random.choice("xy")})
        roles = [(each, random.randint(1, 2)) for each in classes]
        group = alone(*roles, constraints=random_constraints(random, hard=0.8))
        await trial.given(made)
        try:
            result = await trial.ask_one(group)
        except Unsafe:
            raise
        except Failed as error:
            expect(not _has_place(made, group), f"seed {seed}: there is a place; {error}")
            continue
        _judge(result, sum(count for _, count in roles), _has_place(made, group), seed)


def _has_place(made: World, group: pb.GangGroup) -> bool:
    """Some way to divide all members of its one gang over nodes is no violation."""
    [gang] = group.gangs
    request = pb.SolveRequest(groups=[group])
    names = sorted(made.nodes)
    for divisions in product(*(list(_divisions(role.wanted, names)) for role in gang.roles)):
        result = pb.GroupResult(id=group.id, outcome=PLACED)
        for index, division in enumerate(divisions):
            for name, count in division.items():
                result.assignments.add(gang=gang.id, role=index, node=name, count=count)
        if not violations(made, request, pb.SolveResponse(results=[result])):
            return True
    return False


def _judge(result: pb.GroupResult, count: int, feasible: bool, seed: int) -> None:
    try:
        if feasible:
            placed(result, count)
        else:
            not_placed(result)
    except Failed as error:
        proved = ", and is said to be proved to have none" if feasible and result.outcome == INFEASIBLE else ""
        raise Failed(f"seed {seed}: {error}{proved}") from None


def _divisions(count: int, machines: Sequence[str]) -> Iterator[Counter[str]]:
    """Every way to divide so many equal members over nodes."""
    if not machines:
        if not count:
            yield Counter()
        return
    for here in range(count + 1):
        for rest in _divisions(count - here, machines[1:]):
            yield rest + Counter({machines[0]: here})


def _possible(made: World, one: PodClass, division: Counter[str]) -> bool:
    """Room, filters and rules between pods allow it."""
    loads = Loads(made, pb.SolveRequest())
    added = Counter({(one.id, name): count for name, count in division.items()})
    if any(why_unusable(one, made.nodes[name]) for name in division) or why_no_order(loads, added):
        return False
    loads.pods += added
    return not loads.overfull(added)
