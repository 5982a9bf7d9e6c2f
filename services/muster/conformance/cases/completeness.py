"""Completeness: groups that fit are placed, others are not, and infeasibility is proved where counting suffices."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

from msgspec.structs import replace

from muster.conformance.builders import (
    HOSTNAME,
    ZONE,
    bound,
    cluster,
    gang,
    gang_group,
    node,
    nodes,
    pod_class,
    reservation,
    single_gang,
)
from muster.conformance.case import Cases, Feature
from muster.conformance.case_run import CaseRun, expect, infeasible, not_placed, placed, seats
from muster.gangs.facts import (
    Batch,
    HostPort,
    NodeFacts,
    NodeOperator,
    NodeRequirement,
    NodeSelectorTerm,
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
async def filled(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster([node("a", 4), node("b", 3), node("c", 1)], [x]))
    placed(await run.solve_one(single_gang((x, 8))), 8)


@_case("C02", "A gang of equal members for which one seat is missing is proved infeasible (P05)")
async def one_short(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster([node("a", 2), node("b", 2), node("c", 2), node("d", 1)], [x]))
    infeasible(await run.solve_one(single_gang((x, 8))))


@_case("C03", "Of gangs of 5, 4 and 3 members on eight cores, the first and the third are placed (P31)")
async def groups_in_order(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster([node("a", 8)], [x]))
    first, second, third = await run.solve(
        single_gang((x, 5), id="5"), single_gang((x, 4), id="4"), single_gang((x, 3), id="3")
    )
    placed(first, 5)
    infeasible(second)
    placed(third, 3)


@_case("C04", "Members above the minimum are placed as far as they fit, in the order of roles")
async def above_the_minimum(run: CaseRun) -> None:
    x, y = pod_class(1), pod_class(1, memory=1)
    await run.start(cluster(nodes("n", 2, 4), [x, y]))
    result = await run.solve_one(single_gang((x, 6), (y, 6), minimum=2))
    placed(result, 8)
    by_role = [sum(seats(result, role).values()) for role in (0, 1)]
    expect(by_role == [6, 2], f"the roles got {by_role} of 8 members, but the first one wants 6")


@_case("C05", "All minimums of a group are placed before any member above a minimum")
async def minimums_first(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster(nodes("n", 2, 4), [x]))
    gangs = gang((x, 8), id="first", minimum=2), gang((x, 4), id="second")
    result = await run.solve_one(gang_group(*gangs))
    placed(result, 8)


@_case("C06", "A reservation whose pod is already bound counts once (P32)")
async def counted_once(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster([node("a", 4)], [x]))
    pods = bound(x, "a", 2)
    run.change(Batch(pods=tuple(pods)))
    held = [reservation("a", x, *(pod.uid for pod in pods))]
    placed(await run.solve_one(single_gang((x, 2)), reservations=held), 2)


@_case("C07", "Pods that have terminated, are deleted or are unbound hold nothing")
async def terminated_pods(run: CaseRun) -> None:
    x = pod_class(1)
    pods = [
        bound(x, "a", 4, PodPhase.SUCCEEDED),
        bound(x, "b", 4, PodPhase.FAILED),
        bound(x, "c", 4),
        bound(x, "", 4, PodPhase.PENDING),
    ]
    await run.start(cluster([node(name, 4) for name in "abc"], [x], pods))
    placed(await run.solve_one(single_gang((x, 8))), 8)
    run.change(Batch(removed_pods=tuple(pod.uid for pod in pods[2])))
    placed(await run.solve_one(single_gang((x, 12))), 12)


@_case("C08", "Capacity of nodes that are added, grow or are uncordoned is used")
async def added_capacity(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster([node("a", 2), node("b", 4, unschedulable=True)], [x]))
    infeasible(await run.solve_one(single_gang((x, 8))))
    run.change(Batch(nodes=(node("a", 3), node("b", 4), node("c", 1))))
    placed(await run.solve_one(single_gang((x, 8))), 8)


@_case("C09", "Tolerated, selected and PreferNoSchedule nodes are used", Feature.NODE_SELECTION)
async def allowed_nodes(run: CaseRun) -> None:
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
    await run.start(cluster(machines, [tolerant]))
    placed(await run.solve_one(single_gang((tolerant, 4))), 4)
    infeasible(await run.solve_one(single_gang((tolerant, 5))))


@_case("C10", "A large and a small member are placed on the two nodes that fit them (P21)")
async def large_and_small(run: CaseRun) -> None:
    large, small = pod_class(7), pod_class(3)
    await run.start(cluster([node("a", 4), node("b", 8)], [large, small]))
    for roles in ([(large, 1), (small, 1)], [(small, 1), (large, 1)]):
        placed(await run.solve_one(single_gang(*roles)), 2)
    await run.start(cluster([node("a", 8), node("b", 4)], [large, small]))
    placed(await run.solve_one(single_gang((small, 1), (large, 1))), 2)


@_case("C11", "Members without GPU requests leave GPU nodes to members with them (P22)")
async def gpu_nodes_left_free(run: CaseRun) -> None:
    x, y = pod_class(8, gpu=2), pod_class(32)
    machines = [node("a", 64, gpu=8), node("b", 64), node("c", 64)]
    await run.start(cluster(machines, [x, y]))
    for roles in ([(x, 4), (y, 4)], [(y, 4), (x, 4)]):
        placed(await run.solve_one(single_gang(*roles)), 8)
    await run.solve_one(single_gang((y, 4)))


@_case("C12", "Members of 4, 4, 2 and 2 cores are placed on two nodes of 6 (P23)")
async def tight_two_nodes(run: CaseRun) -> None:
    four, two = pod_class(4), pod_class(2)
    await run.start(cluster(nodes("n", 2, 6), [four, two]))
    placed(await run.solve_one(single_gang((two, 2), (four, 2))), 4)


@_case("C13", "Members of 6, 5, 5, 4, 4, 3 and 3 cores are placed on three nodes of 10 (P24)")
async def tight_three_nodes(run: CaseRun) -> None:
    roles = [(pod_class(size), count) for size, count in ((6, 1), (5, 2), (4, 2), (3, 2))]
    await run.start(cluster(nodes("n", 3, 10), [each for each, _ in roles]))
    placed(await run.solve_one(single_gang(*roles)), 7)


@_case("C14", "As many equal members as fit are placed; one more is proved infeasible", random=True)
async def equal_members(run: CaseRun) -> None:
    for seed in range(30):
        random = Random(seed)  # noqa: S311 (the same in every run)
        x = pod_class(random.choice((0.5, 1, 1.5, 3)), memory=random.choice((0, 7, 20)), gpu=random.choice((0, 1)))
        machines = [
            node(f"n{index}", random.randint(1, 12), memory=random.randint(10, 90), gpu=random.randint(0, 6))
            for index in range(random.randint(1, 9))
        ]
        most = sum(_room(x, machine) for machine in machines)
        await run.start(cluster(machines, [x]))
        if most:
            placed(await run.solve_one(single_gang((x, most))), most)
        infeasible(await run.solve_one(single_gang((x, most + 1))))


@_case(
    "C15",
    "Small random gangs are placed if they fit, and never claimed infeasible if they do",
    random=True,
)
async def small_gangs(run: CaseRun) -> None:
    for seed in range(40):
        random = Random(seed)  # noqa: S311 (the same in every run)
        machines = [node(f"n{index}", random.randint(3, 9), memory=random.randint(3, 9)) for index in range(3)]
        classes = list({each.id: each for each in (_random_class(random) for _ in range(3))}.values())
        roles = [(each, random.randint(1, 2)) for each in classes]
        await run.start(cluster(machines, classes))
        result = await run.solve_one(single_gang(*roles))
        members = [each for each, count in roles for _ in range(count)]
        if any(_ways(members, [dict(machine.allocatable) for machine in machines])):
            placed(result, len(members))
        else:
            not_placed(result)


@_case("C16", "On a cluster without nodes every group is infeasible (P36)")
async def no_nodes(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster([], [x]))
    infeasible(await run.solve_one(single_gang((x, 1))))
    run.change(Batch(nodes=(node("a", 1),)))
    placed(await run.solve_one(single_gang((x, 1))), 1)


@_case(
    "C17",
    "Four members with anti-affinity by host name need four nodes and get them (P27)",
    Feature.POD_ANTI_AFFINITY,
)
async def anti_affinity_by_host(run: CaseRun) -> None:
    lonely = pod_class(1, label_set="s", required_pod_anti_affinity=(PodTerm("s", HOSTNAME),))
    await run.start(cluster(nodes("n", 4), [lonely]))
    by_node = placed(await run.solve_one(single_gang((lonely, 4))), 4)
    expect(len(by_node) == 4, f"they are on {by_node}")
    await run.start(cluster(nodes("n", 3), [lonely]))
    not_placed(await run.solve_one(single_gang((lonely, 4))))


@_case("C18", "Three members with the same host port need three nodes (P30)", Feature.HOST_PORTS)
async def one_host_port_per_node(run: CaseRun) -> None:
    web = pod_class(1, host_ports=(HostPort("TCP", "0.0.0.0", 8080),))  # noqa: S104
    await run.start(cluster(nodes("n", 2), [web]))
    not_placed(await run.solve_one(single_gang((web, 3))))
    run.change(Batch(nodes=(node("n-2"),)))
    placed(await run.solve_one(single_gang((web, 3))), 3)


@_case("C19", "Five members over two zones with maxSkew 1 are placed as 3 and 2 (P28)", Feature.POD_TOPOLOGY)
async def spread_over_two_zones(run: CaseRun) -> None:
    even = pod_class(1, label_set="s", spread=(SpreadConstraint(1, ZONE, "s"),))
    machines = [node("a", 8, labels={ZONE: "z0"}), node("b", 8, labels={ZONE: "z1"})]
    await run.start(cluster(machines, [even]))
    by_node = placed(await run.solve_one(single_gang((even, 5))), 5)
    expect(sorted(by_node.values()) == [2, 3], f"they are on {by_node}")


@_case("C20", "Members with affinity to a running pod are placed in its rack (P29)", Feature.POD_TOPOLOGY)
async def affinity_to_bound_pod(run: CaseRun) -> None:
    host = pod_class(1, label_set="db")
    guest = pod_class(1, required_pod_affinity=(PodTerm("db", "rack"),))
    machines = [*nodes("a", 2, 8, labels={"rack": "r0"}), *nodes("b", 2, 3, labels={"rack": "r1"})]
    await run.start(cluster(machines, [host, guest], [bound(host, "b-0")]))
    by_node = placed(await run.solve_one(single_gang((guest, 4))), 4)
    expect(all(name.startswith("b") for name in by_node), f"they are on {by_node}")
    not_placed(await run.solve_one(single_gang((guest, 6))))


@_case("C21", "Members with affinity to each other are placed in a zone that holds them all", Feature.POD_TOPOLOGY)
async def self_affinity(run: CaseRun) -> None:
    birds = pod_class(1, label_set="bird", required_pod_affinity=(PodTerm("bird", ZONE),))
    machines = [node("a", 3, labels={ZONE: "x"}), node("b", 2, labels={ZONE: "y"}), node("c", 2, labels={ZONE: "y"})]
    await run.start(cluster(machines, [birds]))
    placed(await run.solve_one(single_gang((birds, 4))), 4)
    not_placed(await run.solve_one(single_gang((birds, 5))))


@_case("C22", "A group that allows partial placement gets as many members placed as fit", Feature.PARTIAL)
async def partial(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster(nodes("n", 2, 4), [x]))
    result = await run.solve_one(single_gang((x, 9), partial=True))
    total = sum(seats(result).values())
    expect(total == 8, f"{total} of 9 members are placed, but 8 fit")
    everything, nothing = await run.solve(single_gang((x, 8), id="all"), single_gang((x, 1), id="none", partial=True))
    placed(everything, 8)
    not_placed(nothing)


@_case("C23", "Avoided nodes are used if the gang does not fit without them")
async def avoided(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster([node("a", 4), node("b", 2)], [x]))
    group = single_gang((x, 6))
    group.gangs[0].avoided.extend(["a", "gone"])
    placed(await run.solve_one(group), 6)


@_case("C25", "Capacity of pods that a delta ends or removes is used")
async def capacity_of_ended_pods(run: CaseRun) -> None:
    x = pod_class(1)
    pods = bound(x, "a", 4)
    await run.start(cluster([node("a", 4)], [x], [pods]))
    run.change(Batch(pods=(replace(pods[0], phase=PodPhase.SUCCEEDED), replace(pods[1], phase=PodPhase.FAILED))))
    placed(await run.solve_one(single_gang((x, 2))), 2)
    run.change(Batch(removed_pods=(pods[2].uid,)))
    placed(await run.solve_one(single_gang((x, 3))), 3)


@_case("C26", "Members are placed on the node that reaches their volumes", Feature.VOLUMES)
async def volumes(run: CaseRun) -> None:
    in_x = (NodeSelectorTerm(labels=(NodeRequirement(ZONE, NodeOperator.IN, ("x",)),)),)
    attached = pod_class(1, volumes=(in_x,))
    machines = [node("a", 4, labels={ZONE: "y"}), node("b", 2, labels={ZONE: "x"})]
    await run.start(cluster(machines, [attached]))
    by_node = placed(await run.solve_one(single_gang((attached, 2))), 2)
    expect(set(by_node) == {"b"}, f"they are on {by_node}")


def _room(pod_class: PodClass, machine: NodeFacts) -> int:
    """Number of equal members that fit on a node."""
    there = dict(machine.allocatable)
    return min(there.get(name, 0) // amount for name, amount in pod_class.requests if amount)


def _random_class(random: Random) -> PodClass:
    return pod_class(random.randint(1, 5), memory=random.randint(1, 5), gpu=0)


def _ways(members: Sequence[PodClass], free: list[dict[str, int]]) -> Iterator[bool]:
    """Yields True for every placement of all members (exhaustive)."""
    if not members:
        yield True
        return
    first, rest = members[0], members[1:]
    for index, there in enumerate(free):
        if all(there.get(name, 0) >= amount for name, amount in first.requests):
            left = {**there, **{name: there[name] - amount for name, amount in first.requests}}
            yield from _ways(rest, [*free[:index], left, *free[index + 1 :]])
