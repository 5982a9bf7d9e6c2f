"""Safety: every placement in an answer can be bound. Capacity, reservations, and gangs as a whole."""

import asyncio
from random import Random
from typing import Final

from msgspec.structs import replace

from muster.conformance.builders import (
    GPU,
    bound,
    cluster,
    gang,
    gang_group,
    node,
    nodes,
    nominated,
    pod_class,
    potential_victim,
    reservation,
    single_gang,
)
from muster.conformance.case import Cases
from muster.conformance.case_run import CaseRun, expect, not_claimed_infeasible, not_placed
from muster.gangs.facts import Batch, PodClass, PodFacts, PodPhase

CASES: Final = Cases()
_case = CASES.case


@_case("S01", "A batch is answered group by group, in order, and all placed groups fit at the same time")
async def a_batch(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster([node("a", 8)], [x]))
    await run.solve(single_gang((x, 5), id="five"), single_gang((x, 4), id="four"), single_gang((x, 3), id="three"))
    await run.solve()


@_case("S02", "No node is given more than its allocatable of any resource, pod slots included")
async def every_resource(run: CaseRun) -> None:
    classes = [pod_class(2), pod_class(0.1, memory=400), pod_class(0.1, gpu=2), pod_class(0.1)]
    await run.start(cluster(nodes("n", 3, 4, memory=1000, gpu=4, pods=5), classes))
    for count in (1, 2, 4, 6, 7, 8, 16):
        for each in classes:
            await run.solve(single_gang((each, count)))
        await run.solve(single_gang(*((each, count) for each in classes)))
    await run.solve(*(single_gang((each, 4), id=each.id) for each in classes))


@_case("S03", "A resource that a node does not list is not available there")
async def unnamed_resource(run: CaseRun) -> None:
    x = PodClass("unnamed", ((GPU, 1), ("pods", 1)))
    await run.start(cluster([node("a", 8), node("b", 8)], [x]))
    not_placed(await run.solve_one(single_gang((x, 1))))


@_case("S04", "Bound pods hold their resources, whether they run or are still pending")
async def bound_pods(run: CaseRun) -> None:
    x, other = pod_class(1), pod_class(3)
    pods = [bound(other, "a", 2), bound(x, "b", 3, PodPhase.PENDING), bound(x, "c", 8)]
    await run.start(cluster([node(name, 8) for name in "abc"], [x, other], pods))
    for count in (1, 7, 8):
        await run.solve_one(single_gang((x, count)))


@_case("S05", "Pods that a delta creates, moves or binds count from that delta on")
async def deltas(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster([node("a", 4), node("b", 4)], [x]))
    for count in range(1, 5):
        run.change(Batch(pods=tuple(bound(x, "a", count))))
        await run.solve_one(single_gang((x, 8 - count)))
        await run.solve_one(single_gang((x, 9 - count)))


@_case("S06", "Reservations hold their resources")
async def reservations(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster([node("a", 4), node("b", 4)], [x]))
    held = [reservation("a", x, "p", "q", "r"), reservation("gone", x, "s"), reservation("a", x, "t")]
    for count in (1, 4, 5):
        await run.solve_one(single_gang((x, count)), reservations=held)


@_case("S07", "Nominated capacity is given to no other group")
async def nominated_capacity(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster([node("a", 4), node("b", 4)], [x]))
    withheld = [nominated("a", 3), nominated("b", 2), nominated("b", 1.5), nominated("gone", 100)]
    for count in (1, 2, 5):
        await run.solve_one(single_gang((x, count)), nominated=withheld)
    not_placed(await run.solve_one(single_gang((x, 2)), nominated=withheld))


@_case("S08", "A node that is oversubscribed in a resource is given no more of it")
async def oversubscribed_node(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster([node("a", 4), node("b", 2)], [x], [bound(x, "a", 6)]))
    for count in (1, 2, 3):
        await run.solve_one(single_gang((x, count)))


@_case("S09", "A gang gets at least its minimum or nothing, and never more members than it wants")
async def minimums(run: CaseRun) -> None:
    x, y = pod_class(1), pod_class(2)
    await run.start(cluster(nodes("n", 2, 4), [x, y]))
    for minimum in (1, 5, 6):
        await run.solve_one(single_gang((x, 2), (y, 4), minimum=minimum))
    not_placed(await run.solve_one(single_gang((x, 9))))
    await run.solve_one(single_gang((x, 3), minimum=1))


@_case("S10", "The gangs of a group are placed together or not at all")
async def groups(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster(nodes("n", 2, 4), [x]))
    large = gang_group(gang((x, 4), id="first"), gang((x, 5), id="second"), id="too much")
    results = await run.solve(large, single_gang((x, 8), id="behind"))
    not_placed(results[0])
    await run.solve(gang_group(gang((x, 6), id="first", minimum=3), gang((x, 6), id="second", minimum=4)))


@_case("S11", "A group that is not placed takes no capacity from later groups; one that is placed does")
async def later_groups(run: CaseRun) -> None:
    x, giant = pod_class(1), pod_class(100)
    await run.start(cluster(nodes("n", 2, 4), [x, giant]))
    await run.solve(
        single_gang((x, 3), (giant, 1), id="never"),
        single_gang((x, 8), id="all"),
        single_gang((x, 1), id="none"),
        single_gang((giant, 1), id="n"),
    )


@_case("S12", "Only potential victims are preempted, and only their capacity is used")
async def victims(run: CaseRun) -> None:
    x = pod_class(1)
    machines = [node("a", 4), node("b", 4), node("c", 1)]
    await run.start(cluster(machines, [x], [bound(x, "a", 4), bound(x, "b", 4)]))
    offers = [potential_victim("small", ("a", x, 2)), potential_victim("sparing", ("b", x, 4), spare=1, level=1)]
    for count in (1, 2, 3, 4, 6, 7, 8):
        await run.solve_one(single_gang((x, count)), potential_victims=offers)
    not_placed(await run.solve_one(single_gang((x, 2))))


@_case("S13", "A group that allows partial placement is placed only where its members fit")
async def partial_groups(run: CaseRun) -> None:
    x, y = pod_class(1), pod_class(2)
    await run.start(cluster(nodes("n", 2, 3), [x, y]))
    for count in (1, 6, 7, 20):
        await run.solve(single_gang((x, count), partial=True), single_gang((y, 1), id="next", partial=True))
    both = gang_group(gang((x, 4), id="first"), gang((y, 4), id="second"), partial=True)
    await run.solve_one(both)


@_case("S14", "The largest possible amounts cause no unsafe answer")
async def huge_amounts(run: CaseRun) -> None:
    largest = 2**63 - 1
    greedy = PodClass("greedy", (("cpu", largest), ("pods", 1)))
    many = PodClass("many", (("memory", 2**61), ("pods", 1)))
    x = pod_class(1)
    full = node("a", 4)
    pods = [bound(many, "a", 8), bound(greedy, "b", 3)]
    await run.start(cluster([full, node("b", 4), node("c", 4)], [greedy, many, x], pods))
    for each in (greedy, many, x):
        for count in (1, 4, 9, 2**31, 2**32 - 1):
            await run.solve_one(single_gang((each, count), minimum=1))
            await run.solve_one(single_gang((each, count)))


@_case("S15", "Concurrent calls do not share capacity with each other")
async def concurrent_calls(run: CaseRun) -> None:
    x = pod_class(1)
    await run.start(cluster(nodes("n", 4, 4), [x]))
    calls = (run.solve(single_gang((x, 3 + n)), single_gang((x, 5), id="b")) for n in range(12))
    await asyncio.gather(*map(run.concurrently, calls))


@_case("S17", "Pods that end or are deleted by a delta hold nothing: what fits then is not claimed infeasible")
async def ended_by_delta(run: CaseRun) -> None:
    x = pod_class(1)
    ends = ("succeeds", PodPhase.SUCCEEDED), ("fails", PodPhase.FAILED), ("is deleted", None)
    for name, phase in ends:
        pods = bound(x, "a", 4)
        await run.start(cluster([node("a", 4)], [x], [pods]))
        not_placed(await run.solve_one(single_gang((x, 1), id=f"before a pod {name}")))
        half = pods[:2]
        if phase is None:
            run.change(Batch(removed_pods=tuple(pod.uid for pod in half)))
        else:
            run.change(Batch(pods=tuple(replace(pod, phase=phase) for pod in half)))
        not_claimed_infeasible(await run.solve_one(single_gang((x, 2), id=f"after a pod {name}")))
        not_placed(await run.solve_one(single_gang((x, 3), id=f"larger, after a pod {name}")))


@_case("S18", "A gang that obviously fits is never claimed to be infeasible")
async def infeasible_means_proved(run: CaseRun) -> None:
    x, memory = pod_class(1), pod_class(1, memory=10)
    await run.start(cluster([node("a", 8, memory=100), node("b", 8, memory=100)], [x, memory]))
    for each in (x, memory):
        for count in (1, 2, 8, 16 if each is x else 12):
            not_claimed_infeasible(await run.solve_one(single_gang((each, count))))
    run.change(Batch(nodes=(node("c", 8, memory=100),)))
    not_claimed_infeasible(await run.solve_one(single_gang((x, 20), id="after a node was added")))


@_case("S16", "No answer on random clusters is unsafe", random=True)
async def random_clusters(run: CaseRun) -> None:
    for seed in range(60):
        await _one_random_cluster(run, Random(seed))  # noqa: S311 (the same in every run)


async def _one_random_cluster(run: CaseRun, random: Random) -> None:
    sizes = [
        pod_class(random.choice((0.5, 1, 2, 3)), memory=random.choice((0, 10, 30)), gpu=random.choice((0, 0, 1)))
        for _ in range(3)
    ]
    classes = list({each.id: each for each in sizes}.values())
    machines = [
        node(f"n{index}", random.randint(1, 8), memory=random.randint(20, 90), gpu=random.randint(0, 2))
        for index in range(random.randint(1, 8))
    ]
    pods: list[PodFacts] = []
    for machine in machines:
        pods += bound(random.choice(classes), machine.name, random.randint(0, 2))
    await run.start(cluster(machines, classes, [pods]))
    groups = []
    for index in range(random.randint(1, 4)):
        roles = [(each, random.randint(1, 6)) for each in random.sample(classes, random.randint(1, len(classes)))]
        wanted = sum(count for _, count in roles)
        groups.append(
            single_gang(*roles, id=f"g{index}", minimum=random.randint(1, wanted), partial=random.random() < 0.2)
        )
    results = await run.solve(*groups)
    expect(len(results) == len(groups), "a group has no result")
