"""Acts of the services around the coordinator: what they do in time, late, twice, half or not at all; and of clocks."""

from muster.coordinator.core.effects import Bind, Evict, MarkTimedOut, Persist, Solve
from muster.coordinator.core.events import (
    BindResults,
    EvictResults,
    NotPersisted,
    Seat,
    Snapshot,
    Solved,
    SolveFailed,
    ViewLost,
)
from muster.gangs.facts import PodPhase
from muster.gangs.solve import Assignment, SolveGroup, SolveOutcome, SolveResult
from simulation.actions import act
from simulation.world import World

SCALES = (0.1, 1.0, 4.0, 20.0, 90.0, 700.0)
"""Seconds that pass."""


# -- in time


@act(8, which=12)
def effect(world: World, which: int) -> None:
    """One of the things under way is done."""
    if choices := world.choices():
        world.do(choices[which % len(choices)])


@act(1)
def lag(world: World) -> None:
    """From now on what happens is seen later (see `deliver`), or at once again."""
    scenario = world.scenario
    scenario.lagging = not scenario.lagging
    if not scenario.lagging:
        scenario.deliver()


@act(3, count=3)
def deliver(world: World, count: int) -> None:
    """The coordinator sees what happened, up to there."""
    world.scenario.deliver(count + 1)


@act(3)
def run(world: World) -> None:
    """All is seen and done."""
    world.run()


@act(3, scale=6, more=4)
def time(world: World, scale: int, more: int) -> None:
    """Time passes while nobody answers."""
    world.pass_time(SCALES[scale] * (1 + more / 3))


@act(2, scale=6, more=4)
def calm(world: World, scale: int, more: int) -> None:
    """Time passes while everybody does their part."""
    world.calm(SCALES[scale] * (1 + more / 3))


# -- late, twice, half, not at all


@act(0.7, scale=6)
def stall(world: World, scale: int) -> None:
    """The coordinator does not run for a while; it is not woken when it wanted."""
    world.scenario.now += SCALES[scale]


@act(0.7, scale=6, back=2)
def jump(world: World, scale: int, back: int) -> None:
    """Somebody sets the wall clock."""
    world.scenario.unix_ahead += -SCALES[scale] if back else SCALES[scale]


@act(1, soon=2)
def blink(world: World, soon: int) -> None:
    """The view is lost, and comes back whole, at once or later."""
    world.scenario.tell(ViewLost("cluster-state is away"))
    world.scenario.stream = [Snapshot(world.scenario.cluster.whole())]
    if soon:
        world.scenario.deliver()


@act(2, which=4)
def break_call(world: World, which: int) -> None:
    """Binding cannot be reached."""
    calls = [i for i, each in enumerate(world.scenario.under_way) if isinstance(each, Bind | Evict)]
    if calls:
        world.scenario.break_call(calls[which % len(calls)])


@act(2, which=4, count=5)
def part_of_call(world: World, which: int, count: int) -> None:
    """Some pods of a call are bound or evicted, but nobody hears of it; the call stays and is done again later."""
    calls = [each for each in world.scenario.under_way if isinstance(each, Bind | Evict)]
    if calls:
        _do_part(world, calls[which % len(calls)], count)


def _do_part(world: World, call: Bind | Evict, count: int) -> None:
    if isinstance(call, Bind):
        for seat in call.seats[:count]:
            world.scenario.bind(seat)
    else:
        for pod in call.pods[:count]:
            world.scenario.evict(pod)


@act(1.5, which=4)
def results_twice(world: World, which: int) -> None:
    """Results come twice."""
    scenario = world.scenario
    calls = [each for each in scenario.under_way if isinstance(each, Bind | Evict)]
    if not calls:
        return
    call = calls[which % len(calls)]
    scenario.under_way.remove(call)
    event = (
        BindResults(tuple(scenario.bind(seat) for seat in call.seats))
        if isinstance(call, Bind)
        else EvictResults(tuple(scenario.evict(pod) for pod in call.pods))
    )
    scenario.tell(event)
    scenario.tell(event)


@act(2, count=3)
def replicas(world: World, count: int) -> None:
    """Placement is scaled: so many solves may be under way at the same time."""
    world.scenario.scale(count + 1)


@act(0.7, refused=4)
def fail_solve(world: World, refused: int) -> None:
    """Placement is away, or refuses the question."""
    if solve := _solve(world):
        world.scenario.tell(SolveFailed(solve.solve_id, "placement is away", refused=refused == 1, away=refused == 2))


@act(0.5)
def not_found(world: World) -> None:
    """Placement found nothing in time."""
    if solve := _solve(world):
        results = tuple(SolveResult(group.id, SolveOutcome.NOT_FOUND) for group in solve.groups)
        world.scenario.tell(Solved(solve.solve_id, results))


@act(0.7)
def forget_reservations(world: World) -> None:
    """Placement answers as if nothing were reserved or kept, and forgets a group."""
    if solve := _solve(world):
        blind = Solve(solve.solve_id, {}, (), solve.groups[:-1] or solve.groups)
        world.scenario.tell(Solved(solve.solve_id, world.scenario.first_fit(blind)))


@act(0.7, which=4)
def crowd(world: World, which: int) -> None:
    """Placement puts everybody on one node."""
    name = world.node(which)
    if name is not None and (solve := _solve(world)):
        results = tuple(SolveResult(group.id, SolveOutcome.PLACED, _all_on(name, group)) for group in solve.groups)
        world.scenario.tell(Solved(solve.solve_id, results))


@act(0.7, which=4)
def scatter(world: World, which: int) -> None:
    """Placement puts one member on each node in turn, whatever is asked of the tree."""
    names = sorted(world.scenario.cluster.nodes)
    if names and (solve := _solve(world)):
        results = tuple(
            SolveResult(group.id, SolveOutcome.PLACED, _scattered(names[which % len(names) :] + names, group))
            for group in solve.groups
        )
        world.scenario.tell(Solved(solve.solve_id, results))


def _scattered(nodes: list[str], group: SolveGroup) -> tuple[Assignment, ...]:
    members = [
        (asked.id, index) for asked in group.gangs for index, role in enumerate(asked.roles) for _ in range(role.wanted)
    ]
    return tuple(Assignment(*member, nodes[at % len(nodes)], 1) for at, member in enumerate(members))


def _all_on(node: str, group: SolveGroup) -> tuple[Assignment, ...]:
    return tuple(
        Assignment(asked.id, index, node, role.wanted)
        for asked in group.gangs
        for index, role in enumerate(asked.roles)
    )


def _solve(world: World) -> Solve | None:
    for each in world.scenario.under_way:
        if isinstance(each, Solve):
            world.scenario.under_way.remove(each)
            return each
    return None


@act(0.7)
def refuse_write(world: World) -> None:
    """What is to be written is too large."""
    write = next((each for each in world.scenario.under_way if isinstance(each, Persist)), None)
    if write and any(record.seats or record.evicting or record.kept_room for record in write.puts):
        world.scenario.under_way.remove(write)
        world.scenario.tell(NotPersisted(write.persist_id, "too large"))


@act(2, which=12, times=4)
def fail_bind(world: World, which: int, times: int) -> None:
    """The next binds of a pod fail."""
    if pod := world.pod(which, bound=False):
        world.scenario.bind_failures[pod.uid] = times + 1


@act(1, which=12, times=4)
def fail_evict(world: World, which: int, times: int) -> None:
    """The next evictions of a pod fail."""
    if pod := world.pod(which, bound=True):
        world.scenario.evict_failures[pod.uid] = times + 1


@act(0.7)
def graceful(world: World) -> None:
    """From now on pods take their time to go, or no longer."""
    world.scenario.graceful = not world.scenario.graceful


# -- leaders


@act(1.5, writes=4, calls=4, old=2)
def crash(world: World, writes: int, calls: int, old: int) -> None:
    """The leader is gone and another one follows. Some of what was written was durable, some of what was sent was done;
    what was sent and not done is lost, or still on its way to binding.
    """
    scenario = world.scenario
    for write in [each for each in scenario.under_way if isinstance(each, Persist)][:writes]:
        scenario.persist(write)
    sent = [each for each in scenario.under_way if isinstance(each, Bind | Evict | MarkTimedOut)]
    scenario.crash()
    for call in sent[:calls]:
        if not isinstance(call, MarkTimedOut):
            _do_part(world, call, 100)
    world.old += sent[calls:] if old else []
    scenario.start()


@act(1, which=4)
def late_call(world: World, which: int) -> None:
    """What a leader of the past sent is done now; binding has not heard of a later one yet."""
    if not world.old:
        return
    call = world.old.pop(which % len(world.old))
    if isinstance(call, Bind):
        for seat in call.seats:
            _bind_late(world, seat)
    elif isinstance(call, Evict):
        _do_part(world, call, 100)
    elif isinstance(call, MarkTimedOut):
        world.watch.unmarked(call.gang)
        world.scenario.mark(call)


def _bind_late(world: World, seat: Seat) -> None:
    """The API server binds whatever it is told; kubelets would refuse what does not fit."""
    pod = world.scenario.cluster.pods.get(seat.uid)
    if pod is not None and not (pod.node or pod.deleting) and pod.phase is PodPhase.PENDING:
        world.share(seat.node)
        world.scenario.bind_elsewhere(seat.uid, seat.node)
