"""Completeness: what has a place is placed, what has none is told so, and as proved where that can be."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

from muster.conformance.building import (
    HOSTNAME,
    ZONE,
    alone,
    bound,
    gang,
    node,
    nodes,
    pod_class,
    reservation,
    together,
    world,
)
from muster.conformance.case import Cases, Feature
from muster.conformance.trial import Trial, expect, infeasible, not_placed, placed, seats
from muster.gangs.facts import (
    Batch,
    HostPort,
    NodeFacts,
    PodClass,
    PodPhase,
    PodTerm,
    SpreadConstraint,
    Taint,
    TaintEffect,
    Toleration,
    TolerationOperator,
)

CASES: Final = Cases()
_case = CASES.case


@_case("C01", "A gang that fills the cluster to the last core is placed")
async def filled(trial: Trial) -> None:
    x = pod_class(1)
    await trial.given(world([node("a", 4), node("b", 3), node("c", 1)], [x]))
    placed(await trial.ask_one(alone((x, 8))), 8)


@_case("C02", "A gang of equal members that is one short is proved infeasible (P05)")
async def one_short(trial: Trial) -> None:
    x = pod_class(1)
    await trial.given(world([node("a", 2), node("b", 2), node("c", 2), node("d", 1)], [x]))
    infeasible(await trial.ask_one(alone((x, 8))))


@_case("C03", "Of three gangs on eight cores, of 5, 4 and 3, the first and the third are placed (P31)")
async def in_turn(trial: Trial) -> None:
    x = pod_class(1)
    await trial.given(world([node("a", 8)], [x]))
    first, second, third = await trial.ask(alone((x, 5), id="5"), alone((x, 4), id="4"), alone((x, 3), id="3"))
    placed(first, 5)
    infeasible(second)
    placed(third, 3)


@_case("C04", "Members above the minimum are placed as far as there is room, those of the first roles first")
async def above_the_minimum(trial: Trial) -> None:
    x, y = pod_class(1), pod_class(1, memory=1)
    await trial.given(world(nodes("n", 2, 4), [x, y]))
    result = await trial.ask_one(alone((x, 6), (y, 6), minimum=2))
    placed(result, 8)
    by_role = [sum(seats(result, role).values()) for role in (0, 1)]
    expect(by_role == [6, 2], f"of 8 places {by_role} went to the roles, but the first wants 6")


@_case("C05", "In a group all minimums come before anybody's members above them")
async def minimums_first(trial: Trial) -> None:
    x = pod_class(1)
    await trial.given(world(nodes("n", 2, 4), [x]))
    gangs = gang((x, 8), id="first", minimum=2), gang((x, 4), id="second")
    result = await trial.ask_one(together(*gangs))
    placed(result, 8)


@_case("C06", "A reservation whose pod is seen on its node counts once (P32)")
async def counted_once(trial: Trial) -> None:
    x = pod_class(1)
    await trial.given(world([node("a", 4)], [x]))
    pods = bound(x, "a", 2)
    trial.then(Batch(pods=tuple(pods)))
    held = [reservation("a", x, *(pod.uid for pod in pods))]
    placed(await trial.ask_one(alone((x, 2)), reservations=held), 2)


@_case("C07", "Pods that ended, went or have no node hold nothing")
async def gone_pods(trial: Trial) -> None:
    x = pod_class(1)
    pods = [
        bound(x, "a", 4, PodPhase.SUCCEEDED),
        bound(x, "b", 4, PodPhase.FAILED),
        bound(x, "c", 4),
        bound(x, "", 4, PodPhase.PENDING),
    ]
    await trial.given(world([node(name, 4) for name in "abc"], [x], pods))
    placed(await trial.ask_one(alone((x, 8))), 8)
    trial.then(Batch(removed_pods=tuple(pod.uid for pod in pods[2])))
    placed(await trial.ask_one(alone((x, 12))), 12)


@_case("C08", "Room on nodes that come, grow or are uncordoned is used")
async def new_room(trial: Trial) -> None:
    x = pod_class(1)
    await trial.given(world([node("a", 2), node("b", 4, unschedulable=True)], [x]))
    infeasible(await trial.ask_one(alone((x, 8))))
    trial.then(Batch(nodes=(node("a", 3), node("b", 4), node("c", 1))))
    placed(await trial.ask_one(alone((x, 8))), 8)


@_case("C09", "Nodes that the class tolerates or selects are used, and what it only would rather avoid as well")
async def allowed_nodes(trial: Trial) -> None:
    gpu = Taint("gpu", "yes", TaintEffect.NO_SCHEDULE)
    hesitant = Taint("old", "", TaintEffect.PREFER_NO_SCHEDULE)
    tolerant = pod_class(
        1,
        node_selector=(("pool", "gpu"),),
        tolerations=(Toleration("gpu", TolerationOperator.EXISTS),),
    )
    machines = [
        node("a", 2, labels={"pool": "gpu"}, taints=(gpu,)),
        node("b", 2, labels={"pool": "gpu"}, taints=(hesitant,)),
        node("c", 2),
    ]
    await trial.given(world(machines, [tolerant]))
    placed(await trial.ask_one(alone((tolerant, 4))), 4)
    infeasible(await trial.ask_one(alone((tolerant, 5))))


@_case("C10", "A large and a small member find their two nodes (P21)")
async def large_and_small(trial: Trial) -> None:
    large, small = pod_class(7), pod_class(3)
    await trial.given(world([node("a", 4), node("b", 8)], [large, small]))
    for roles in ([(large, 1), (small, 1)], [(small, 1), (large, 1)]):
        placed(await trial.ask_one(alone(*roles)), 2)
    await trial.given(world([node("a", 8), node("b", 4)], [large, small]))
    placed(await trial.ask_one(alone((small, 1), (large, 1))), 2)


@_case("C11", "Members that need no GPU leave the nodes that have some to those that do (P22)")
async def leave_the_gpus(trial: Trial) -> None:
    x, y = pod_class(8, gpu=2), pod_class(32)
    machines = [node("a", 64, gpu=8), node("b", 64), node("c", 64)]
    await trial.given(world(machines, [x, y]))
    for roles in ([(x, 4), (y, 4)], [(y, 4), (x, 4)]):
        placed(await trial.ask_one(alone(*roles)), 8)
    await trial.ask_one(alone((y, 4)))


@_case("C12", "Members of 4, 4, 2 and 2 find their places on two nodes of 6 (P23)")
async def small_puzzle(trial: Trial) -> None:
    four, two = pod_class(4), pod_class(2)
    await trial.given(world(nodes("n", 2, 6), [four, two]))
    placed(await trial.ask_one(alone((two, 2), (four, 2))), 4)


@_case("C13", "Members of 6, 5, 5, 4, 4, 3 and 3 find their places on three nodes of 10 (P24)")
async def tight_puzzle(trial: Trial) -> None:
    roles = [(pod_class(size), count) for size, count in ((6, 1), (5, 2), (4, 2), (3, 2))]
    await trial.given(world(nodes("n", 3, 10), [each for each, _ in roles]))
    placed(await trial.ask_one(alone(*roles)), 7)


@_case("C14", "Whatever fits of equal members is placed, whatever does not is proved infeasible", random=True)
async def equal_members(trial: Trial) -> None:
    for seed in range(30):
        random = Random(seed)  # noqa: S311 (the same in every run)
        x = pod_class(random.choice((0.5, 1, 1.5, 3)), memory=random.choice((0, 7, 20)), gpu=random.choice((0, 1)))
        machines = [
            node(f"n{index}", random.randint(1, 12), memory=random.randint(10, 90), gpu=random.randint(0, 6))
            for index in range(random.randint(1, 9))
        ]
        most = sum(_room(x, machine) for machine in machines)
        await trial.given(world(machines, [x]))
        if most:
            placed(await trial.ask_one(alone((x, most))), most)
        infeasible(await trial.ask_one(alone((x, most + 1))))


@_case(
    "C15",
    "What can be placed is never told to be proved infeasible, and small gangs that can be are placed",
    random=True,
)
async def small_gangs(trial: Trial) -> None:
    for seed in range(40):
        random = Random(seed)  # noqa: S311 (the same in every run)
        machines = [node(f"n{index}", random.randint(3, 9), memory=random.randint(3, 9)) for index in range(3)]
        classes = list({each.id: each for each in (_random_class(random) for _ in range(3))}.values())
        roles = [(each, random.randint(1, 2)) for each in classes]
        await trial.given(world(machines, classes))
        result = await trial.ask_one(alone(*roles))
        members = [each for each, count in roles for _ in range(count)]
        if any(_ways(members, [dict(machine.allocatable) for machine in machines])):
            placed(result, len(members))
        else:
            not_placed(result)


@_case("C16", "Without nodes everything is infeasible (P36)")
async def no_nodes(trial: Trial) -> None:
    x = pod_class(1)
    await trial.given(world([], [x]))
    infeasible(await trial.ask_one(alone((x, 1))))
    trial.then(Batch(nodes=(node("a", 1),)))
    placed(await trial.ask_one(alone((x, 1))), 1)


@_case("C17", "Four members that keep apart by host name need four nodes, and get them (P27)")
async def one_each(trial: Trial) -> None:
    lonely = pod_class(1, selected_by=("s",), required_pod_anti_affinity=(PodTerm("s", HOSTNAME),))
    await trial.given(world(nodes("n", 4), [lonely]))
    by_node = placed(await trial.ask_one(alone((lonely, 4))), 4)
    expect(len(by_node) == 4, f"they are on {by_node}")
    await trial.given(world(nodes("n", 3), [lonely]))
    not_placed(await trial.ask_one(alone((lonely, 4))))


@_case("C18", "Three members with one host port need three nodes (P30)")
async def one_port_each(trial: Trial) -> None:
    web = pod_class(1, host_ports=(HostPort("TCP", "0.0.0.0", 8080),))  # noqa: S104
    await trial.given(world(nodes("n", 2), [web]))
    not_placed(await trial.ask_one(alone((web, 3))))
    trial.then(Batch(nodes=(node("n-2"),)))
    placed(await trial.ask_one(alone((web, 3))), 3)


@_case("C19", "Five members spread over two zones with maxSkew 1 are 3 and 2 (P28)", Feature.POD_TOPOLOGY)
async def three_and_two(trial: Trial) -> None:
    even = pod_class(1, selected_by=("s",), spread=(SpreadConstraint(1, ZONE, "s"),))
    machines = [node("a", 8, labels={ZONE: "z0"}), node("b", 8, labels={ZONE: "z1"})]
    await trial.given(world(machines, [even]))
    by_node = placed(await trial.ask_one(alone((even, 5))), 5)
    expect(sorted(by_node.values()) == [2, 3], f"they are on {by_node}")


@_case("C20", "Members that want to be in the rack of a pod that runs are placed there (P29)", Feature.POD_TOPOLOGY)
async def in_company(trial: Trial) -> None:
    host = pod_class(1, selected_by=("db",))
    guest = pod_class(1, required_pod_affinity=(PodTerm("db", "rack"),))
    machines = [*nodes("a", 2, 8, labels={"rack": "r0"}), *nodes("b", 2, 3, labels={"rack": "r1"})]
    await trial.given(world(machines, [host, guest], [bound(host, "b-0")]))
    by_node = placed(await trial.ask_one(alone((guest, 4))), 4)
    expect(all(name.startswith("b") for name in by_node), f"they are on {by_node}")
    not_placed(await trial.ask_one(alone((guest, 6))))


@_case("C21", "Members that want to be together in a zone are placed in one that holds them", Feature.POD_TOPOLOGY)
async def flock(trial: Trial) -> None:
    birds = pod_class(1, selected_by=("bird",), required_pod_affinity=(PodTerm("bird", ZONE),))
    machines = [node("a", 3, labels={ZONE: "x"}), node("b", 2, labels={ZONE: "y"}), node("c", 2, labels={ZONE: "y"})]
    await trial.given(world(machines, [birds]))
    placed(await trial.ask_one(alone((birds, 4))), 4)
    not_placed(await trial.ask_one(alone((birds, 5))))


@_case("C22", "A group that may be placed in part has as many members placed as there is room for", Feature.PARTIAL)
async def as_many_as_fit(trial: Trial) -> None:
    x = pod_class(1)
    await trial.given(world(nodes("n", 2, 4), [x]))
    result = await trial.ask_one(alone((x, 9), partial=True))
    total = sum(seats(result).values())
    expect(total == 8, f"{total} of 9 members are placed, there is room for 8")
    everything, nothing = await trial.ask(alone((x, 8), id="all"), alone((x, 1), id="none", partial=True))
    placed(everything, 8)
    not_placed(nothing)


@_case("C23", "Nodes that are rather to be avoided are used if there is no place without them")
async def avoided(trial: Trial) -> None:
    x = pod_class(1)
    await trial.given(world([node("a", 4), node("b", 2)], [x]))
    group = alone((x, 6))
    group.gangs[0].avoided.extend(["a", "gone"])
    placed(await trial.ask_one(group), 6)


def _room(pod_class: PodClass, machine: NodeFacts) -> int:
    """How many equal members one node holds."""
    there = dict(machine.allocatable)
    return min(there.get(name, 0) // amount for name, amount in pod_class.requests if amount)


def _random_class(random: Random) -> PodClass:
    return pod_class(random.randint(1, 5), memory=random.randint(1, 5), gpu=0)


def _ways(members: Sequence[PodClass], free: list[dict[str, int]]) -> Iterator[bool]:
    """True for every way to place all members; by trying all."""
    if not members:
        yield True
        return
    first, rest = members[0], members[1:]
    for index, there in enumerate(free):
        if all(there.get(name, 0) >= amount for name, amount in first.requests):
            left = {**there, **{name: there[name] - amount for name, amount in first.requests}}
            yield from _ways(rest, [*free[:index], left, *free[index + 1 :]])
