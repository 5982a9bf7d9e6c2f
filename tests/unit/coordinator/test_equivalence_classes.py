"""Equal gangs form an equivalence class: its representative is solved for all, and no gang is forgotten."""

from collections.abc import Iterable

from msgspec.structs import replace

from builders.core.actions import crowded, ends, until
from builders.core.objects import node, plain_pod, pod_class
from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.effects import Bind, Solve
from muster.coordinator.core.events import Solved, SolveFailed, Tick
from muster.coordinator.core.report.reasons import reason
from muster.gangs.facts import PodPhase
from muster.gangs.solve import Explanation, SolveOutcome, SolveResult


def line(count: int, size: int = 4) -> list[CoreGang]:
    """Gangs that want the same, the oldest first."""
    return [gang(f"g{number:02}").of(size).created(number) for number in range(count)]


def waiting(scenario: Scenario, gangs: Iterable[CoreGang]) -> None:
    """Creates gangs that have no place."""
    scenario.add(*gangs)
    scenario.run()
    scenario.pass_time(2)
    scenario.solves.clear()


def asked_for(scenario: Scenario) -> list[str]:
    """Gangs of all solves so far, by their names."""
    return [group.id.rsplit("/", 1)[-1] for solve in scenario.solves for group in solve.groups]


def started(scenario: Scenario, gangs: Iterable[CoreGang]) -> list[str]:
    """Gangs of which all pods are bound."""
    return [each.name for each in gangs if scenario.bound(each.name) == each.size]


def under_way(scenario: Scenario) -> list[Solve]:
    return [effect for effect in scenario.under_way if isinstance(effect, Solve)]


def no_answer(scenario: Scenario, **how: bool) -> None:
    """Placement fails in everything that it was asked."""
    for solve in under_way(scenario):
        scenario.under_way.remove(solve)
        scenario.tell(SolveFailed(solve.solve_id, "UNAVAILABLE", **how))


# -- what a line costs


def test_while_nothing_fits_only_the_representative_is_solved() -> None:
    scenario = Scenario({"n": 2})
    waiting(scenario, line(50, size=8))
    for number in range(3):
        scenario.change(nodes=[node(f"small{number}", 1)])
        scenario.pass_time(2)
    assert asked_for(scenario) == ["g00"] * 3


def test_a_large_class_starts_in_few_rounds_when_much_capacity_is_freed() -> None:
    scenario = Scenario({"n": 2})
    gangs = line(200)
    waiting(scenario, gangs)
    scenario.change(nodes=[node(f"large{number}", 100) for number in range(4)])
    scenario.pass_time(2)
    assert started(scenario, gangs) == [each.name for each in gangs[:100]]
    assert len(scenario.solves) <= 10


def test_members_of_a_class_start_in_queue_order() -> None:
    scenario = Scenario({"n": 2})
    gangs = line(6)
    for each in reversed(gangs):
        waiting(scenario, [each])
    scenario.change(nodes=[node("m", 4 * 3)])
    scenario.pass_time(2)
    assert started(scenario, gangs) == ["g00", "g01", "g02"]


def test_the_whole_class_reports_the_explanation_of_its_representative() -> None:
    scenario = Scenario({"n": 1})
    gangs = line(100)
    messages: list[str] = []

    def solve(request: Solve) -> tuple[SolveResult, ...]:
        messages.extend(f"so it is for the {len(messages) + number}th time" for number in range(len(request.groups)))
        said = zip(request.groups, messages[-len(request.groups) :], strict=True)
        return tuple(
            SolveResult(group.id, SolveOutcome.INFEASIBLE, explanation=Explanation(text)) for group, text in said
        )

    scenario.solver = solve
    waiting(scenario, gangs)
    scenario.change(nodes=[node("m", 1)])
    scenario.pass_time(0.25)
    scenario.change(nodes=[node("o", 1)])  # while the others are being told
    scenario.pass_time(5)
    assert asked_for(scenario) == ["g00", "g00"]
    assert explanations(scenario, gangs) == dict.fromkeys((each.name for each in gangs), messages[-1])


def test_a_new_gang_that_equals_others_without_a_place_is_not_tried() -> None:
    scenario = Scenario({"n": 1})
    waiting(scenario, line(3))
    more = [gang(f"more{number}").of(4).created(10 + number) for number in range(150)]
    scenario.add(*more)
    scenario.run()
    scenario.pass_time(1)
    assert asked_for(scenario) == []
    [told] = set(explanations(scenario, more).values())
    assert told == explanations(scenario, line(1))["g00"]
    scenario.change(nodes=[node(f"large{number}", 100) for number in range(7)])
    scenario.pass_time(2)
    assert all(scenario.bound(each.name) == 4 for each in [*line(3), *more])


def test_a_new_gang_ahead_of_its_equals_is_tried() -> None:
    """Nominated capacity may be open to it that was not open to them."""
    scenario = Scenario({"n": 1})
    waiting(scenario, line(3))
    scenario.add(gang("first").of(4).created(10).with_priority(5).never_preempting())
    scenario.add(gang("second").of(4).created(10).with_priority(5))
    scenario.run()
    assert asked_for(scenario) == ["first", "second"]


def test_a_new_gang_is_tried_while_its_equals_are_tried_again() -> None:
    scenario = Scenario({"n": 1})
    waiting(scenario, line(3))
    scenario.change(nodes=[node("m", 8)])
    scenario.add(gang("more").of(4).created(10))
    scenario.pass_time(2)
    assert started(scenario, [*line(3), gang("more").of(4)]) == ["g00", "g01"]


def explanations(scenario: Scenario, gangs: Iterable[CoreGang]) -> dict[str, str]:
    """Explanations of the gangs that wait, by their names."""
    names = {each.name for each in gangs}
    said = {group.id.rsplit("/", 1)[-1]: group.solve for group in scenario.leader.queue.groups.values()}
    return {
        name: state.solver_explanation.summary
        for name, state in said.items()
        if name in names and state.solver_explanation is not None
    }


def test_a_rejected_gang_that_is_represented_gives_the_reason_of_its_class() -> None:
    scenario = Scenario({"n": 2})
    scenario.solver = lambda solve: tuple(
        SolveResult(group.id, SolveOutcome.INFEASIBLE, explanation=Explanation("so it is")) for group in solve.groups
    )
    scenario.scale(2)
    waiting(scenario, line(2))
    scenario.change(nodes=[node("small0", 1)])
    (solve,) = under_way(scenario)
    scenario.under_way.remove(solve)
    scenario.tell(Solved(solve.solve_id, ()))
    assert "no answer" in reason(scenario.gang("g00"))
    scenario.change(nodes=[node("small1", 1)])  # the next one is tried while the first backs off
    assert [group.id[-3:] for solve in under_way(scenario) for group in solve.groups] == ["g01"]
    scenario.now += 1
    scenario.tell(Tick())
    scenario.pass_time(2)
    assert [reason(scenario.gang(name)) for name in ("g00", "g01")] == [
        f"gang default/{name} cannot start: so it is" for name in ("g00", "g01")
    ]


# -- whoever speaks goes


def three_pools() -> Scenario:
    """Pools without room for pods of their own, two replicas of placement, and a line of three gangs for the third."""
    scenario = Scenario(start=False)
    for pool in "xyz":
        scenario.cluster.classes[f"in-{pool}"] = replace(pod_class(1), id=f"in-{pool}", node_selector=(("pool", pool),))
        scenario.cluster.nodes[pool] = node(pool, 0, labels={"pool": pool})
    scenario.replicas = 2
    scenario.start()
    for number in range(3):
        add_to(scenario, "z", gang(f"g{number:02}").of(4).created(10 + number))
    scenario.run()
    scenario.pass_time(2)
    return scenario


def add_to(scenario: Scenario, pool: str, *builders: CoreGang) -> None:
    pods = [replace(pod, class_id=f"in-{pool}") for built in builders for pod in built.pods()]
    scenario.change(gangs=[built.gang_facts() for built in builders], pods=pods)


def test_i7_the_next_gang_represents_after_the_first_is_deleted() -> None:
    scenario = three_pools()
    first = gang("g00").of(4).created(10)
    scenario.lagging = True
    for pool in "xy":
        add_to(scenario, pool, gang(f"in-{pool}").of(8))  # no room: nothing comes of it that helps others
    scenario.change(nodes=[node("z2", 4, labels={"pool": "z"})])
    events, scenario.stream, scenario.lagging = scenario.stream, [], False
    scenario.tell(*events)
    assert [group.id[-4:] for solve in under_way(scenario) for group in solve.groups] == ["in-x", "in-y"]
    scenario.delete(first)
    scenario.pass_time(5)
    assert [scenario.bound(name) for name in ("in-x", "in-y", "g01", "g02")] == [0, 0, 4, 0]


def test_i7_the_next_gang_represents_after_the_first_changes() -> None:
    scenario = Scenario({"n": 1})
    gangs = line(3)
    waiting(scenario, gangs)
    scenario.lagging = True
    scenario.change(pods=[replace(pod, class_id=pod_class(8).id) for pod in gangs[0].pods()])
    scenario.change(nodes=[node("m", 4)])
    scenario.lagging = False
    scenario.deliver()
    scenario.pass_time(2)
    assert started(scenario, gangs) == ["g01"]


def test_i7_the_next_gang_represents_after_the_first_fails_and_is_deleted() -> None:
    scenario = Scenario({"n": 1})
    gangs = line(3)
    waiting(scenario, gangs)
    scenario.change(nodes=[node("m", 4)])
    no_answer(scenario)
    scenario.delete(gangs[0])
    scenario.pass_time(5)
    assert started(scenario, gangs[1:]) == ["g01"]


def test_i7_the_next_gang_is_solved_as_well_after_a_solve_without_result() -> None:
    scenario = Scenario({"n": 1})
    gangs = line(3)
    waiting(scenario, gangs)
    scenario.change(nodes=[node("m", 4)])
    (solve,) = under_way(scenario)
    scenario.under_way.remove(solve)
    scenario.tell(Solved(solve.solve_id, (SolveResult(solve.groups[0].id, SolveOutcome.NOT_FOUND),)))
    scenario.delete(gangs[0])
    scenario.pass_time(5)
    assert started(scenario, gangs[1:]) == ["g01"]


def test_i7_an_event_wakes_the_next_gang_while_the_first_backs_off() -> None:
    scenario = Scenario({"n": 1})
    gangs = line(3, size=20)
    waiting(scenario, gangs)
    first_fit, first = scenario.solver, gangs[0].id
    scenario.solver = lambda solve: tuple(
        replace(result, outcome=SolveOutcome.PLACED, assignments=()) if first in result.id else result
        for result in first_fit(solve)
    )
    for number in range(8):  # its pauses get long
        scenario.change(nodes=[node(f"small{number}", 1)])
        scenario.pass_time(2)
    began = scenario.now
    scenario.change(nodes=[node("m", 20)])
    scenario.run_effects()
    assert started(scenario, gangs) == ["g01"]
    assert scenario.now == began


# -- who does not belong in the line of others


def test_gangs_that_end_in_time_do_not_wait_behind_long_ones() -> None:
    scenario = Scenario({"n": 4, "m": 4})
    runs, fills = gang("runs").of(4).running_for(100), gang("fills").of(4).running_for(10)
    scenario.add(runs, fills)
    scenario.run()
    head = gang("head").of(8).created(5)
    long, short = (
        gang(name).of(2).running_for(seconds).created(40) for name, seconds in (("long", 3000), ("short", 20))
    )
    scenario.add(head, long, short)
    scenario.pass_time(31)
    assert scenario.leader.cache.nominations
    for pod in fills.pods():
        ends(scenario, pod.uid)
    scenario.pass_time(2)
    assert (scenario.bound("long"), scenario.bound("short")) == (0, 2)


def test_a_preemptor_does_not_wait_behind_a_repair_that_must_not_preempt() -> None:
    scenario = crowded({"n": 4, "m": 4}, guarded=0)
    scenario.add(gang("repairs").of(8).with_budget("default/guarded"))
    seats = until(scenario, Bind).seats
    for seat in seats[:7]:
        scenario.bind(seat)
    scenario.crash()
    for number, seat in enumerate(seats[7:]):
        scenario.intrude(plain_pod(f"x{number}"), seat.node)
    scenario.start()
    scenario.run_effects()
    scenario.add(gang("matters").of(1).with_priority(10))
    scenario.pass_time(5)
    alike, shape = (scenario.gang(name).group.queueing.equivalence_key for name in ("repairs", "matters"))
    assert alike == shape is not None
    runs = gang("runs").of(2).with_priority(5)
    scenario.change(
        nodes=[node("k", 2)],
        gangs=[runs.gang_facts()],
        pods=[replace(pod, node="k", phase=PodPhase.RUNNING) for pod in runs.pods()],
    )
    scenario.pass_time(5)
    scenario.finish_deletions()
    scenario.pass_time(5)
    assert (scenario.bound("repairs"), scenario.bound("matters")) == (8, 1)
