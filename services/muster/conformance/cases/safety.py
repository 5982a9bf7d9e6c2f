"""Safety: what is answered as placed can be started. Here: room, who holds it, and gangs as a whole."""

import asyncio
from random import Random
from typing import Final

from muster.conformance.building import (
    GPU,
    alone,
    bound,
    gang,
    node,
    nodes,
    nominated,
    pod_class,
    potential_victim,
    reservation,
    together,
    world,
)
from muster.conformance.case import Cases
from muster.conformance.trial import Trial, expect, not_placed
from muster.gangs.facts import Batch, PodClass, PodFacts, PodPhase

CASES: Final = Cases()
_case = CASES.case


@_case("S01", "The groups of a batch are answered in their order, each once, and fit beside each other")
async def a_batch(trial: Trial) -> None:
    x = pod_class(1)
    await trial.given(world([node("a", 8)], [x]))
    await trial.ask(alone((x, 5), id="five"), alone((x, 4), id="four"), alone((x, 3), id="three"))
    await trial.ask()


@_case("S02", "A node is given no more than it has, of any resource, pods included")
async def every_resource(trial: Trial) -> None:
    classes = [pod_class(2), pod_class(0.1, memory=400), pod_class(0.1, gpu=2), pod_class(0.1)]
    await trial.given(world(nodes("n", 3, 4, memory=1000, gpu=4, pods=5), classes))
    for count in (1, 2, 4, 6, 7, 8, 16):
        for each in classes:
            await trial.ask(alone((each, count)))
        await trial.ask(alone(*((each, count) for each in classes)))
    await trial.ask(*(alone((each, 4), id=each.id) for each in classes))


@_case("S03", "A resource that a node does not name is not there")
async def unnamed_resource(trial: Trial) -> None:
    x = PodClass("unnamed", ((GPU, 1), ("pods", 1)))
    await trial.given(world([node("a", 8), node("b", 8)], [x]))
    not_placed(await trial.ask_one(alone((x, 1))))


@_case("S04", "Pods on nodes hold their room, running or not yet")
async def bound_pods(trial: Trial) -> None:
    x, other = pod_class(1), pod_class(3)
    pods = [bound(other, "a", 2), bound(x, "b", 3, PodPhase.PENDING), bound(x, "c", 8)]
    await trial.given(world([node(name, 8) for name in "abc"], [x, other], pods))
    for count in (1, 7, 8):
        await trial.ask_one(alone((x, count)))


@_case("S05", "Pods that come, move on or are added to a node by a delta count from then on")
async def deltas(trial: Trial) -> None:
    x = pod_class(1)
    await trial.given(world([node("a", 4), node("b", 4)], [x]))
    for count in range(1, 5):
        trial.then(Batch(pods=tuple(bound(x, "a", count))))
        await trial.ask_one(alone((x, 8 - count)))
        await trial.ask_one(alone((x, 9 - count)))


@_case("S06", "Reservations hold their room")
async def reservations(trial: Trial) -> None:
    x = pod_class(1)
    await trial.given(world([node("a", 4), node("b", 4)], [x]))
    held = [reservation("a", x, "p", "q", "r"), reservation("gone", x, "s"), reservation("a", x, "t")]
    for count in (1, 4, 5):
        await trial.ask_one(alone((x, count)), reservations=held)


@_case("S07", "Room that is nominated is given to nobody")
async def withheld_room(trial: Trial) -> None:
    x = pod_class(1)
    await trial.given(world([node("a", 4), node("b", 4)], [x]))
    kept = [nominated("a", 3), nominated("b", 2), nominated("b", 1.5), nominated("gone", 100)]
    for count in (1, 2, 5):
        await trial.ask_one(alone((x, count)), nominated=kept)
    not_placed(await trial.ask_one(alone((x, 2)), nominated=kept))


@_case("S08", "A node that holds more than it has is given nothing more of that")
async def overcommitted(trial: Trial) -> None:
    x = pod_class(1)
    await trial.given(world([node("a", 4), node("b", 2)], [x], [bound(x, "a", 6)]))
    for count in (1, 2, 3):
        await trial.ask_one(alone((x, count)))


@_case("S09", "A gang has its minimum or nothing, and never more than it wants")
async def minimums(trial: Trial) -> None:
    x, y = pod_class(1), pod_class(2)
    await trial.given(world(nodes("n", 2, 4), [x, y]))
    for minimum in (1, 5, 6):
        await trial.ask_one(alone((x, 2), (y, 4), minimum=minimum))
    not_placed(await trial.ask_one(alone((x, 9))))
    await trial.ask_one(alone((x, 3), minimum=1))


@_case("S10", "Gangs of one group start together or not at all")
async def groups(trial: Trial) -> None:
    x = pod_class(1)
    await trial.given(world(nodes("n", 2, 4), [x]))
    large = together(gang((x, 4), id="first"), gang((x, 5), id="second"), id="too much")
    results = await trial.ask(large, alone((x, 8), id="behind"))
    not_placed(results[0])
    await trial.ask(together(gang((x, 6), id="first", minimum=3), gang((x, 6), id="second", minimum=4)))


@_case("S11", "A group that gets no place takes none away from those behind it, and one that does keeps it")
async def who_is_behind(trial: Trial) -> None:
    x, giant = pod_class(1), pod_class(100)
    await trial.given(world(nodes("n", 2, 4), [x, giant]))
    await trial.ask(
        alone((x, 3), (giant, 1), id="never"),
        alone((x, 8), id="all"),
        alone((x, 1), id="none"),
        alone((giant, 1), id="n"),
    )


@_case("S12", "Nothing is removed that was not offered, and nobody is placed on what was not removed")
async def removals(trial: Trial) -> None:
    x = pod_class(1)
    machines = [node("a", 4), node("b", 4), node("c", 1)]
    await trial.given(world(machines, [x], [bound(x, "a", 4), bound(x, "b", 4)]))
    offers = [potential_victim("small", ("a", x, 2)), potential_victim("sparing", ("b", x, 4), spare=1, level=1)]
    for count in (1, 2, 3, 4, 6, 7, 8):
        await trial.ask_one(alone((x, count)), potential_victims=offers)
    not_placed(await trial.ask_one(alone((x, 2))))


@_case("S13", "A group that may be placed in part is placed where there is room and nowhere else")
async def in_part(trial: Trial) -> None:
    x, y = pod_class(1), pod_class(2)
    await trial.given(world(nodes("n", 2, 3), [x, y]))
    for count in (1, 6, 7, 20):
        await trial.ask(alone((x, count), partial=True), alone((y, 1), id="next", partial=True))
    both = together(gang((x, 4), id="first"), gang((y, 4), id="second"), partial=True)
    await trial.ask_one(both)


@_case("S14", "Amounts as large as they can be do no harm")
async def huge_amounts(trial: Trial) -> None:
    largest = 2**63 - 1
    greedy = PodClass("greedy", (("cpu", largest), ("pods", 1)))
    many = PodClass("many", (("memory", 2**61), ("pods", 1)))
    x = pod_class(1)
    full = node("a", 4)
    pods = [bound(many, "a", 8), bound(greedy, "b", 3)]
    await trial.given(world([full, node("b", 4), node("c", 4)], [greedy, many, x], pods))
    for each in (greedy, many, x):
        for count in (1, 4, 9, 2**31, 2**32 - 1):
            await trial.ask_one(alone((each, count), minimum=1))
            await trial.ask_one(alone((each, count)))


@_case("S15", "Calls at the same time do not share what each of them is given")
async def at_the_same_time(trial: Trial) -> None:
    x = pod_class(1)
    await trial.given(world(nodes("n", 4, 4), [x]))
    await asyncio.gather(*(trial.ask(alone((x, 3 + n)), alone((x, 5), id="b")) for n in range(12)))


@_case("S16", "On random clusters no answer does harm", random=True)
async def random_clusters(trial: Trial) -> None:
    for seed in range(60):
        await _one_random_cluster(trial, Random(seed))  # noqa: S311 (the same in every run)


async def _one_random_cluster(trial: Trial, random: Random) -> None:
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
    await trial.given(world(machines, classes, [pods]))
    groups = []
    for index in range(random.randint(1, 4)):
        roles = [(each, random.randint(1, 6)) for each in random.sample(classes, random.randint(1, len(classes)))]
        wanted = sum(count for _, count in roles)
        groups.append(alone(*roles, id=f"g{index}", minimum=random.randint(1, wanted), partial=random.random() < 0.2))
    results = await trial.ask(*groups)
    expect(len(results) == len(groups), "a group has no answer")
