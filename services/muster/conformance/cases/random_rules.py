"""Random clusters with everything at once: labels, taints, rules between pods, trees and constraints. What is safe is
judged by the checker; whether small gangs have a place, by trying every division of them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

from muster.conformance.building import (
    HOSTNAME,
    ZONE,
    alone,
    bound,
    factor,
    node,
    pack,
    partition,
    pod_class,
    sizes,
    spread,
    tree,
    world,
)
from muster.conformance.case import Cases, Failed, Feature, Unsafe
from muster.conformance.checker.answers import INFEASIBLE
from muster.conformance.checker.company import why_no_order
from muster.conformance.checker.filters import why_unusable
from muster.conformance.checker.loads import Loads
from muster.conformance.checker.shape import broken
from muster.conformance.trial import Trial, expect, not_placed, placed
from muster.conformance.world import World
from muster.gangs.facts import (
    HostPort,
    LevelConstraint,
    NodeFacts,
    PodClass,
    PodTerm,
    SpreadConstraint,
    Taint,
    TaintEffect,
    Toleration,
    TolerationOperator,
)
from muster.placement.v1 import placement_pb2 as pb

SAFETY: Final = Cases()
COMPLETENESS: Final = Cases()
TOPOLOGY: Final = Cases()

_KEYS: Final = (HOSTNAME, ZONE)
_SELECTORS: Final = ("red", "blue")


@SAFETY.case("S40", "On random clusters with taints, labels and rules between pods no answer does harm", random=True)
async def random_rules(trial: Trial) -> None:
    for seed in range(60):
        random = Random(seed)  # noqa: S311 (the same in every run)
        made = _random_world(random, nodes=random.randint(2, 8), classes=4)
        await trial.given(made)
        listed = list(made.classes.values())
        for _ in range(2):
            groups = [_random_group(random, listed, f"g{index}") for index in range(random.randint(1, 3))]
            await trial.ask(*groups)


@SAFETY.case("S41", "On random trees with random constraints, hard and soft, no answer does harm", random=True)
async def random_constraints(trial: Trial) -> None:
    for seed in range(60):
        random = Random(seed)  # noqa: S311 (the same in every run)
        x, y = pod_class(1), pod_class(random.choice((1, 2)), memory=5)
        made = _random_tree(random, [x, y], most=6)
        await trial.given(made)
        for _ in range(3):
            constraints = _random_constraints(random, hard=0.5)
            roles = [(x, random.randint(1, 9)), (y, random.randint(1, 4))][: random.randint(1, 2)]
            wanted = sum(count for _, count in roles)
            minimum = random.choice((wanted, random.randint(1, wanted)))
            try:
                await trial.ask_one(alone(*roles, minimum=minimum, constraints=constraints))
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
        made = _random_world(random, nodes=random.randint(2, 4), classes=2)
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
        made = _random_tree(random, [x], most=3)
        constraints, count = _random_constraints(random, hard=0.8), random.randint(2, 6)
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


# -- what is random


def _random_world(random: Random, *, nodes: int, classes: int) -> World:
    """Nodes in zones, some with taints or without a zone; classes with rules; pods of them that are there."""
    machines = [_random_node(random, index) for index in range(nodes)]
    listed = list({each.id: each for each in (_random_class(random) for _ in range(classes))}.values())
    pods = [bound(random.choice(listed), machine.name) for machine in machines if random.random() < 0.3]
    return world(machines, listed, pods)


def _random_node(random: Random, index: int) -> NodeFacts:
    labels = {ZONE: random.choice("xyz")} if random.random() < 0.9 else {}
    taints = (Taint("t", "", TaintEffect.NO_SCHEDULE),) if random.random() < 0.15 else ()
    return node(f"n{index}", random.randint(1, 4), labels=labels, taints=taints)


def _random_class(random: Random) -> PodClass:
    def term() -> PodTerm:
        return PodTerm(random.choice(_SELECTORS), random.choice(_KEYS))

    def sometimes(chance: float) -> bool:
        return random.random() < chance

    rule = SpreadConstraint(
        random.randint(1, 2),
        random.choice(_KEYS),
        random.choice(_SELECTORS),
        min_domains=random.choice((1, 1, 3)),
        honors_taints=sometimes(0.3),
        ignores_node_affinity=sometimes(0.3),
    )
    return pod_class(
        1,
        memory=random.randint(0, 3),
        selected_by=tuple(each for each in sorted(_SELECTORS) if sometimes(0.5)),
        required_pod_anti_affinity=(term(),) if sometimes(0.3) else (),
        required_pod_affinity=(term(),) if sometimes(0.25) else (),
        spread=(rule,) if sometimes(0.3) else (),
        host_ports=(HostPort("TCP", random.choice(("0.0.0.0", "10.0.0.1")), 80),) if sometimes(0.15) else (),  # noqa: S104
        tolerations=(Toleration("t", TolerationOperator.EXISTS),) if sometimes(0.3) else (),
    )


def _random_group(random: Random, classes: Sequence[PodClass], name: str) -> pb.GangGroup:
    roles = [(each, random.randint(1, 4)) for each in random.sample(classes, random.randint(1, min(2, len(classes))))]
    wanted = sum(count for _, count in roles)
    return alone(*roles, id=name, minimum=random.randint(1, wanted))


def _random_tree(random: Random, classes: Sequence[PodClass], *, most: int) -> World:
    """Two zones of up to two racks of up to two nodes, perhaps one node outside."""
    domains: dict[str, dict[str, dict[str, int]]] = {}
    names = iter("abcdefgh")
    for zone in range(random.randint(1, 2)):
        racks = {
            f"r{zone}{rack}": {next(names): random.randint(1, most) for _ in range(random.randint(1, 2))}
            for rack in range(random.randint(1, 2))
        }
        domains[f"z{zone}"] = racks
    machines = [node(name, cpu) for racks in domains.values() for rack in racks.values() for name, cpu in rack.items()]
    if random.random() < 0.2:
        machines.append(node("outside", most))
    return world(machines, classes, trees=[tree("zone rack", domains)])


def _random_constraints(random: Random, *, hard: float) -> list[LevelConstraint]:
    """At most one shape and one size per level."""
    found = []
    for level in ("zone", "rack", "node"):
        if random.random() < 0.5:
            made = random.choice((pack, spread))(level, hard=random.random() < hard)
            found.append(partition(level, 2, hard=made.hard) if random.random() < 0.25 else made)
        if random.random() < 0.3:
            strict = random.random() < hard
            low = random.randint(1, 2)
            found.append(
                factor(level, 2, hard=strict)
                if random.random() < 0.5
                else sizes(level, low, low + random.randint(0, 3), hard=strict)
            )
    return found
