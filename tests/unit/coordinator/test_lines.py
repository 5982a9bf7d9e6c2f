"""Gangs that want just the same stand in a line: the first of them speaks for the others, and nobody is forgotten."""

from collections.abc import Iterable

from msgspec.structs import replace

from builders.core.actions import crowded, ends, until
from builders.core.objects import GangBuilder, gang, node, plain_pod, pod_class
from builders.core.world import Story
from muster.coordinator.core.effects import Bind, Solve
from muster.coordinator.core.events import Solved, SolveFailed
from muster.gangs.facts import PodPhase
from muster.gangs.solve import Explanation, SolveOutcome, SolveResult


def line(count: int, size: int = 4) -> list[GangBuilder]:
    """Gangs that want the same, the oldest first."""
    return [gang(f"g{number:02}").of(size).created(number) for number in range(count)]


def waiting(story: Story, gangs: Iterable[GangBuilder]) -> None:
    """They come, and have no place."""
    story.add(*gangs)
    story.run()
    story.pass_time(2)
    story.solves.clear()


def asked_for(story: Story) -> list[str]:
    """Gangs of all solves so far, by their names."""
    return [group.id.rsplit("/", 1)[-1] for solve in story.solves for group in solve.groups]


def started(story: Story, gangs: Iterable[GangBuilder]) -> list[str]:
    """Those that are bound whole."""
    return [each.name for each in gangs if story.bound(each.name) == sum(count for count, _ in each.sizes)]


def under_way(story: Story) -> list[Solve]:
    return [effect for effect in story.under_way if isinstance(effect, Solve)]


def no_answer(story: Story, **how: bool) -> None:
    """Placement fails in everything that it was asked."""
    for solve in under_way(story):
        story.under_way.remove(solve)
        story.tell(SolveFailed(solve.solve_id, "UNAVAILABLE", **how))


# -- what a line costs


def test_while_nothing_fits_one_of_a_long_line_is_asked_for() -> None:
    story = Story({"n": 2})
    waiting(story, line(50, size=8))
    for number in range(3):
        story.change(nodes=[node(f"small{number}", 1)])
        story.pass_time(2)
    assert asked_for(story) == ["g00"] * 3


def test_when_much_room_comes_a_long_line_starts_in_few_rounds() -> None:
    story = Story({"n": 2})
    gangs = line(200)
    waiting(story, gangs)
    story.change(nodes=[node(f"large{number}", 100) for number in range(4)])
    story.pass_time(2)
    assert started(story, gangs) == [each.name for each in gangs[:100]]
    assert len(story.solves) <= 10


def test_they_start_in_their_order_whenever_they_came() -> None:
    story = Story({"n": 2})
    gangs = line(6)
    for each in reversed(gangs):
        waiting(story, [each])
    story.change(nodes=[node("m", 4 * 3)])
    story.pass_time(2)
    assert started(story, gangs) == ["g00", "g01", "g02"]


def test_all_of_a_long_line_are_told_what_the_first_one_heard() -> None:
    story = Story({"n": 1})
    gangs = line(100)
    said = iter(f"so it is for the {number}th time" for number in range(1000))
    story.solver = lambda solve: tuple(
        SolveResult(group.id, SolveOutcome.INFEASIBLE, explanation=Explanation(next(said))) for group in solve.groups
    )
    waiting(story, gangs)
    story.change(nodes=[node("m", 1)])
    story.pass_time(0.25)
    story.change(nodes=[node("o", 1)])  # while the others are being told
    story.pass_time(5)
    assert asked_for(story) == ["g00", "g00"]
    assert {
        group.solve.solver_explanation.summary
        for group in story.leader.queue.ordered()
        if group.solve.solver_explanation
    } == {"so it is for the 101th time"}


# -- whoever speaks goes


def three_pools() -> Story:
    """Pools without room for pods of their own, two replicas of placement, and a line of three gangs for the third."""
    story = Story(start=False)
    for pool in "xyz":
        story.cluster.classes[f"in-{pool}"] = replace(pod_class(1), id=f"in-{pool}", node_selector=(("pool", pool),))
        story.cluster.nodes[pool] = node(pool, 0, labels={"pool": pool})
    story.replicas = 2
    story.start()
    for number in range(3):
        add_to(story, "z", gang(f"g{number:02}").of(4).created(10 + number))
    story.run()
    story.pass_time(2)
    return story


def add_to(story: Story, pool: str, *builders: GangBuilder) -> None:
    pods = [replace(pod, class_id=f"in-{pool}") for built in builders for pod in built.pods()]
    story.change(gangs=[built.gang_facts() for built in builders], pods=pods)


def test_i7_when_the_first_goes_before_it_was_asked_for_the_next_one_speaks() -> None:
    story = three_pools()
    first = gang("g00").of(4).created(10)
    story.lagging = True
    for pool in "xy":
        add_to(story, pool, gang(f"in-{pool}").of(8))  # no room: nothing comes of it that helps others
    story.change(nodes=[node("z2", 4, labels={"pool": "z"})])
    events, story.stream, story.lagging = story.stream, [], False
    story.tell(*events)
    assert [group.id[-4:] for solve in under_way(story) for group in solve.groups] == ["in-x", "in-y"]
    story.delete(first)
    story.pass_time(5)
    assert [story.bound(name) for name in ("in-x", "in-y", "g01", "g02")] == [0, 0, 4, 0]


def test_i7_when_the_first_asks_for_something_else_the_next_one_speaks() -> None:
    story = Story({"n": 1})
    gangs = line(3)
    waiting(story, gangs)
    story.lagging = True
    story.change(pods=[replace(pod, class_id=pod_class(8).id) for pod in gangs[0].pods()])
    story.change(nodes=[node("m", 4)])
    story.lagging = False
    story.deliver()
    story.pass_time(2)
    assert started(story, gangs) == ["g01"]


def test_i7_when_the_first_goes_after_placement_failed_the_next_one_speaks() -> None:
    story = Story({"n": 1})
    gangs = line(3)
    waiting(story, gangs)
    story.change(nodes=[node("m", 4)])
    no_answer(story)
    story.delete(gangs[0])
    story.pass_time(5)
    assert started(story, gangs[1:]) == ["g01"]


def test_i7_when_it_is_not_known_whether_the_first_has_a_place_the_next_one_is_asked_for_as_well() -> None:
    story = Story({"n": 1})
    gangs = line(3)
    waiting(story, gangs)
    story.change(nodes=[node("m", 4)])
    (solve,) = under_way(story)
    story.under_way.remove(solve)
    story.tell(Solved(solve.solve_id, (SolveResult(solve.groups[0].id, SolveOutcome.NOT_FOUND),)))
    story.delete(gangs[0])
    story.pass_time(5)
    assert started(story, gangs[1:]) == ["g01"]


def test_i7_while_the_first_waits_because_of_a_refused_answer_help_lets_the_next_one_out() -> None:
    story = Story({"n": 1})
    gangs = line(3, size=20)
    waiting(story, gangs)
    first_fit, first = story.solver, gangs[0].id
    story.solver = lambda solve: tuple(
        replace(result, outcome=SolveOutcome.PLACED, assignments=()) if first in result.id else result
        for result in first_fit(solve)
    )
    for number in range(8):  # its pauses get long
        story.change(nodes=[node(f"small{number}", 1)])
        story.pass_time(2)
    began = story.now
    story.change(nodes=[node("m", 20)])
    story.run_effects()
    assert started(story, gangs) == ["g01"]
    assert story.now == began


# -- who does not belong in the line of others


def test_those_that_end_in_time_do_not_wait_behind_those_that_run_for_long() -> None:
    story = Story({"n": 4, "m": 4})
    runs, fills = gang("runs").of(4).expected(100), gang("fills").of(4).expected(10)
    story.add(runs, fills)
    story.run()
    head = gang("head").of(8).created(5)
    long, short = (gang(name).of(2).expected(seconds).created(40) for name, seconds in (("long", 3000), ("short", 20)))
    story.add(head, long, short)
    story.pass_time(31)
    assert story.leader.cache.kept
    for pod in fills.pods():
        ends(story, pod.uid)
    story.pass_time(2)
    assert (story.bound("long"), story.bound("short")) == (0, 2)


def test_who_may_preempt_is_not_hidden_behind_a_repair_that_may_not() -> None:
    story = crowded({"n": 4, "m": 4}, guarded=0)
    story.add(gang("repairs").of(8).budget("default/guarded"))
    seats = until(story, Bind).seats
    for seat in seats[:6]:
        story.bind(seat)
    story.crash()
    for number, seat in enumerate(seats[6:]):
        story.intrude(plain_pod(f"x{number}"), seat.node)
    story.start()
    story.run_effects()
    story.add(gang("matters").minimum(1).of(2).priority(10))
    story.pass_time(5)
    alike, shape = (story.gang(name).group.queueing.equivalence_key for name in ("repairs", "matters"))
    assert alike == shape is not None
    runs = gang("runs").of(2).priority(5)
    story.change(
        nodes=[node("k", 2)],
        gangs=[runs.gang_facts()],
        pods=[replace(pod, node="k", phase=PodPhase.RUNNING) for pod in runs.pods()],
    )
    story.pass_time(5)
    story.finish_deletions()
    story.pass_time(5)
    assert (story.bound("repairs"), story.bound("matters")) == (6, 2)
