"""Actions of the services around the coordinator: on time, late, twice, partly or never; and of clocks."""

from muster.coordinator.core.effects import Bind, Deallocate, Evict, MarkTimedOut, Persist, Solve
from muster.coordinator.core.events import (
    BindCallFailed,
    BindResults,
    DeallocateCallFailed,
    DeallocateResults,
    Event,
    EvictCallFailed,
    EvictResults,
    NotPersisted,
    Now,
    Seat,
    Snapshot,
    Solved,
    SolveFailed,
    Tick,
    ViewLost,
)
from muster.coordinator.core.gang.subgroups import gang_id_of
from muster.gangs.facts import PodPhase
from muster.gangs.solve import Assignment, SolveGroup, SolveOutcome, SolveResult
from simulation.actions import action
from simulation.world import DeposedLeader, World

SCALES = (0.1, 1.0, 4.0, 20.0, 90.0, 700.0)
"""Seconds."""


# -- in time


@action(8, which=12)
def complete_effect(world: World, which: int) -> None:
    """Carries out one of the effects in flight."""
    if choices := world.choices():
        world.do(choices[which % len(choices)])


@action(1)
def toggle_lag(world: World) -> None:
    """Delays cluster changes from now on (see `deliver`), or stops delaying them."""
    scenario = world.scenario
    scenario.lagging = not scenario.lagging
    if not scenario.lagging:
        scenario.deliver()


@action(3, count=3)
def deliver(world: World, count: int) -> None:
    """Delivers the next delayed changes."""
    world.scenario.deliver(count + 1)


@action(3)
def run(world: World) -> None:
    """Delivers all changes and carries out all effects."""
    world.run()


@action(3, scale=6, more=4)
def pass_time(world: World, scale: int, more: int) -> None:
    """Time passes while no service answers."""
    world.pass_time(SCALES[scale] * (1 + more / 3))


@action(2, scale=6, more=4)
def settle(world: World, scale: int, more: int) -> None:
    """Time passes while all services do their work."""
    world.calm(SCALES[scale] * (1 + more / 3))


# -- late, twice, partly, never


@action(0.7, scale=6)
def stall(world: World, scale: int) -> None:
    """The coordinator does not run for a while, although it asked to be woken."""
    world.scenario.now += SCALES[scale]


@action(0.7, scale=6, back=2)
def jump_clock(world: World, scale: int, back: int) -> None:
    """Somebody sets the wall clock."""
    world.scenario.unix_ahead += -SCALES[scale] if back else SCALES[scale]


@action(1, soon=2)
def lose_stream(world: World, soon: int = 0) -> None:
    """The stream of cluster-state is lost; a new snapshot follows, at once or later."""
    world.scenario.tell(ViewLost("cluster-state is unavailable"))
    world.scenario.stream = [Snapshot(world.scenario.cluster.whole())]
    if soon:
        world.scenario.deliver()


@action(0.5, soon=2)
def restore_api_server(world: World, soon: int) -> None:
    """The API server's etcd is restored from a backup with the same objects: revisions are lower than before."""
    world.scenario.cluster.revision //= 2
    lose_stream(world, soon)


@action(1)
def back_up_api_server(world: World) -> None:
    """Takes a backup of the API server's etcd, in place of an earlier one."""
    world.back_up()


@action(0.7, soon=2, called=2)
def restore_backup(world: World, soon: int, called: int) -> None:
    """The API server's etcd is restored from the backup: bound pods are pending again, deleted objects are back, and
    new ones are gone, while Muster's etcd is of today. Changes before it were observed; an outage takes longer than
    they do. `called`: calls to binding were carried out just before, and
    their results arrive just after.
    """
    if world.backup is None:
        return
    scenario = world.scenario
    late: list[Event] = []
    for call in [each for each in scenario.under_way if called and isinstance(each, Bind | Deallocate | Evict)]:
        scenario.under_way.remove(call)
        scenario.binding.leader_calls()
        late.append(_carried_out(world, call))
    scenario.deliver()
    world.restore()
    lose_stream(world)
    # Pods that live again may be on a node with reservations, and a node that is gone may come back smaller.
    world.share(*world.nodes_seen, *scenario.cluster.nodes)
    if soon:
        scenario.deliver()
    scenario.tell(*late)


@action(2, which=4)
def break_call(world: World, which: int) -> None:
    """Binding is unreachable."""
    calls = [i for i, each in enumerate(world.scenario.under_way) if isinstance(each, Bind | Deallocate | Evict)]
    if calls:
        world.scenario.break_call(calls[which % len(calls)])


@action(2, which=4, count=5)
def complete_partly(world: World, which: int, count: int) -> None:
    """Some pods of a call are bound or evicted without a result; the call remains in flight."""
    calls = [each for each in world.scenario.under_way if isinstance(each, Bind | Deallocate | Evict)]
    if calls:
        _do_part(world, calls[which % len(calls)], count)


def _do_part(world: World, call: Bind | Deallocate | Evict, count: int) -> None:
    world.scenario.binding.leader_calls()
    if isinstance(call, Bind):
        failing = world.scenario.unready(call)
        for seat in call.seats[:count] if not failing else ():
            world.scenario.bind(seat)
    elif isinstance(call, Deallocate):
        world.scenario.claims.deallocate(call)
    else:
        for pod in call.pods[:count]:
            world.scenario.evict(pod)


@action(1.5, which=4)
def repeat_results(world: World, which: int) -> None:
    """Results are delivered twice."""
    scenario = world.scenario
    calls = [each for each in scenario.under_way if isinstance(each, Bind | Deallocate | Evict)]
    if not calls:
        return
    call = calls[which % len(calls)]
    scenario.under_way.remove(call)
    scenario.binding.leader_calls()
    event = _carried_out(world, call)
    scenario.tell(event)
    scenario.tell(event)


def _carried_out(world: World, call: Bind | Deallocate | Evict) -> Event:
    if isinstance(call, Deallocate):
        return DeallocateResults(call.gang, world.scenario.claims.deallocate(call))
    if isinstance(call, Bind):
        return BindResults(world.scenario.bind_all(call))
    return EvictResults(tuple(world.scenario.evict(pod) for pod in call.pods))


@action(2, count=3)
def scale_placement(world: World, count: int) -> None:
    """Changes the number of placement replicas, which is the number of concurrent solves."""
    world.scenario.scale(count + 1)


@action(0.7, refused=4)
def fail_solve(world: World, refused: int) -> None:
    """Placement is unavailable, or rejects the request."""
    if solve := _solve(world):
        world.scenario.tell(
            SolveFailed(solve.solve_id, "placement is unavailable", refused=refused == 1, away=refused == 2)
        )


@action(0.5)
def answer_not_found(world: World) -> None:
    """Placement finds no solution in time."""
    if solve := _solve(world):
        results = tuple(SolveResult(group.id, SolveOutcome.NOT_FOUND) for group in solve.groups)
        world.scenario.tell(Solved(solve.solve_id, results))


def _solve_badly(world: World) -> Solve | None:
    """A solve request that placement answers without regard to rules between pods, which the coordinator trusts."""
    if (solve := _solve(world)) is not None:
        gangs = {gang_id_of(asked.id) for group in solve.groups for asked in group.gangs}
        world.scenario.unruled.update(pod.uid for pod in world.scenario.cluster.pods.values() if pod.gang in gangs)
        plain = {id_ for id_, gang in world.scenario.leader.cache.gangs.items() if gang.plain and id_ in gangs}
        for id_ in plain:
            world.scenario.unruled.update(world.scenario.leader.cache.gangs[id_].pods)
    return solve


@action(0.7)
def answer_without_reservations(world: World) -> None:
    """Placement ignores reservations and nominations, and omits a group."""
    if solve := _solve_badly(world):
        blind = Solve(solve.solve_id, {}, (), solve.groups[:-1] or solve.groups)
        world.scenario.tell(Solved(solve.solve_id, world.scenario.first_fit(blind)))


@action(0.7, which=4)
def answer_one_node(world: World, which: int) -> None:
    """Placement assigns all members to one node."""
    name = world.node(which)
    if name is not None and (solve := _solve_badly(world)):
        results = tuple(SolveResult(group.id, SolveOutcome.PLACED, _all_on(name, group)) for group in solve.groups)
        world.scenario.tell(Solved(solve.solve_id, results))


@action(0.7, which=4)
def answer_scattered(world: World, which: int) -> None:
    """Placement assigns members to nodes in turn, against any constraints."""
    names = sorted(world.scenario.cluster.nodes)
    if names and (solve := _solve_badly(world)):
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


@action(0.7)
def reject_write(world: World) -> None:
    """A write is too large for etcd."""
    write = next((each for each in world.scenario.under_way if isinstance(each, Persist)), None)
    if write and any(record.seats or record.evicting or record.nominated for record in write.puts):
        world.scenario.under_way.remove(write)
        world.scenario.tell(NotPersisted(write.persist_id, "too large"))


@action(2, which=12, times=4)
def fail_bind(world: World, which: int, times: int) -> None:
    """The next binds of a pod fail."""
    if pod := world.pod(which, bound=False):
        world.scenario.bind_failures[pod.uid] = times + 1


@action(1, which=40, times=6)
def fail_volumes(world: World, which: int, times: int) -> None:
    """The volume of a pod cannot be made for a while."""
    if (pod := world.pod(which)) is not None:
        world.scenario.volume_failures[pod.uid] = times + 1


@action(1, which=12, times=4)
def fail_evict(world: World, which: int, times: int) -> None:
    """The next evictions of a pod fail."""
    if pod := world.pod(which, bound=True):
        world.scenario.evict_failures[pod.uid] = times + 1


@action(0.7)
def toggle_graceful(world: World) -> None:
    """From now on evicted pods terminate slowly, or at once again."""
    world.scenario.graceful = not world.scenario.graceful


# -- leaders


@action(1.5, writes=4, calls=4, old=3, restored=6, late=2)
def crash(world: World, writes: int, calls: int, old: int, restored: int, late: int) -> None:
    """The leader dies and another one takes over. Some of its writes are durable and some of its calls are carried out;
    the other calls are lost, or still in flight to binding, or running there.
    """
    scenario = world.scenario
    sent = _stop_leading(world, writes, late=bool(late))
    for call in sent[:calls]:
        if not isinstance(call, MarkTimedOut):
            _do_part(world, call, 100)
    _leave_in_flight(world, sent[calls:] if old else [], running=old == 2)
    scenario.etcd_restored = restored == 1
    scenario.start()


@action(2.5, writes=4, running=2, late=3)
def depose(world: World, writes: int, running: int, late: int) -> None:
    """Another coordinator becomes leader, and the former one does not know: both send calls to binding."""
    leader, epoch = world.scenario.leader, world.scenario.binding.epochs[-1]
    sent = _stop_leading(world, writes, late=bool(late))
    _leave_in_flight(world, sent, running=bool(running))
    world.deposed = DeposedLeader(leader, epoch)
    world.scenario.start()


def _stop_leading(world: World, writes: int, *, late: bool) -> list[Bind | Deallocate | Evict | MarkTimedOut]:
    """The leader's first writes become durable. Returns its calls to binding in flight; `late`: it has just sent one if
    it had anything to do.
    """
    scenario = world.scenario
    while (
        late
        and scenario.under_way
        and not any(isinstance(each, Bind | Deallocate | Evict) for each in scenario.under_way)
    ):
        world.do(world.choices()[0])
    for write in [each for each in scenario.under_way if isinstance(each, Persist)][:writes]:
        scenario.persist(write)
    sent = [each for each in scenario.under_way if isinstance(each, Bind | Deallocate | Evict | MarkTimedOut)]
    scenario.crash()
    return sent


def _leave_in_flight(world: World, calls: list[Bind | Deallocate | Evict | MarkTimedOut], *, running: bool) -> None:
    binding = world.scenario.binding
    for call in calls:
        binding.leave_in_flight(call, binding.epochs[-1], running=running)


@action(2, informed=2, broken=2)
def run_deposed(world: World, informed: int, broken: int) -> None:
    """A leader that was deposed acts on what it knew, or knows again, and retries its calls. etcd refuses its writes,
    which ends its term.
    """
    if world.deposed is None:
        return
    scenario, (machine, epoch) = world.scenario, world.deposed
    events: list[Event] = [ViewLost("cluster-state is away"), Snapshot(scenario.cluster.whole())] if informed else []
    for former in scenario.binding.former_calls if broken else []:
        if former.epoch == epoch and isinstance(former.call, Bind):
            events.append(BindCallFailed(tuple(seat.uid for seat in former.call.seats), "connection refused"))
        elif former.epoch == epoch and isinstance(former.call, Deallocate):
            uids = tuple(each.uid for each in former.call.claims)
            events.append(DeallocateCallFailed(former.call.gang, uids, "connection refused"))
        elif former.epoch == epoch and isinstance(former.call, Evict):
            events.append(EvictCallFailed(tuple(pod.uid for pod in former.call.pods), "connection refused"))
    for effect in machine.step([*events, Tick()], Now(scenario.now, scenario.unix)):
        if isinstance(effect, Bind | Deallocate | Evict | MarkTimedOut):
            scenario.binding.leave_in_flight(effect, epoch, running=False)
        elif isinstance(effect, Persist):
            world.deposed = None


@action(4, which=4, replica=2)
def deliver_late_call(world: World, which: int, replica: int) -> None:
    """A call of a former leader arrives at a replica of binding, which may not know of a later leader; or goes on."""
    if not world.scenario.binding.former_calls:
        return
    with world.scenario.binding.late_call(which, replica) as call:
        if isinstance(call, Bind):
            failing = world.scenario.unready(call, late=True)
            for seat in call.seats if not (failing and call.claims_first) else ():
                if seat.uid not in failing:
                    _bind_late(world, seat)
        elif isinstance(call, Deallocate):
            world.scenario.claims.deallocate(call)
        elif isinstance(call, Evict):
            for pod in call.pods:
                world.scenario.evict(pod)
        elif isinstance(call, MarkTimedOut):
            world.oracle.unmarked(call.gang)
            world.scenario.mark(call)
        else:
            world.deposed = None  # it learns that another one leads


@action(1)
def switch_binding(world: World) -> None:
    """From now on the leader's calls go to the other replica of binding."""
    world.scenario.binding.used = 1 - world.scenario.binding.used


@action(0.5)
def call_with_made_up_epoch(world: World) -> None:
    """Somebody calls binding with a leader epoch that etcd does not have."""
    world.scenario.binding.made_up_call()
    world.number()


def _bind_late(world: World, seat: Seat) -> None:
    """Binds as the API server does, whatever the node has free; kubelets would reject a pod that does not fit."""
    pod = world.scenario.cluster.pods.get(seat.uid)
    if pod is not None and not (pod.node or pod.deleting) and pod.phase is PodPhase.PENDING:
        world.share(seat.node)
        world.scenario.bind_elsewhere(seat.uid, seat.node)
