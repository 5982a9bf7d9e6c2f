"""Checks at the end of a scenario: at rest, and after everything was deleted."""

from collections import Counter

from builders.core.invariants import check_quiet
from builders.core.objects import GPUS
from builders.core.scenario import Scenario
from builders.core.shared_claims import is_shared
from builders.gangs.facts import gang
from builders.gangs.labels import selects
from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.effects import Solve
from muster.coordinator.core.events import RecordState
from muster.coordinator.core.gang.gang import Group
from muster.coordinator.core.preemption.nomination import as_amounts, nominated_for_others
from muster.coordinator.core.report.diagnosis import wait_of
from muster.coordinator.core.report.reasons import reason
from muster.coordinator.core.report.waits import Wait
from muster.coordinator.core.solve.request import to_place
from muster.devices.facts import Claim
from muster.gangs.facts import DeviceObject, MatchPolicy, PodPhase, split_kind
from muster.gangs.solve import PodsOnNode, PotentialVictim, SolveGroup, SolveOutcome, SolveResult
from simulation.growth_checks import check_nothing_grows
from simulation.world import FOREIGN_NODE, ObservedScenario, World

REST_SECONDS = (1.0, 30.0, 700.0, 1300.0, 1300.0, 30.0)
"""Together longer than any waiting-time or timeout."""
PROBE_SECONDS = 60.0


def finish(world: World) -> None:
    """Lets everything settle and checks the result, then deletes everything and checks that nothing is left."""
    scenario = world.scenario
    scenario.graceful = scenario.lagging = scenario.thief = False
    scenario.stuck.clear()
    scenario.evict_failures.clear()
    scenario.binding.former_calls.clear()
    world.oracle.preempted_for.clear()
    for seconds in REST_SECONDS:
        world.calm(seconds)
        scenario.finish_deletions()
    world.calm(1.0)
    if (due := scenario.leader._reports.next_time()) is not None and due <= scenario.now + 1.0:
        world.calm(1.0)  # a reservation has just expired, and a report is about to say so
    check_at_rest(world)
    _delete_all(world)
    check_nothing_left(world)
    check_capacity_is_free(world)
    _delete_all(world)
    check_nothing_grows(world)


def check_at_rest(world: World) -> None:
    """Checks that no work is left."""
    scenario = world.scenario
    check_quiet(scenario.leader.cache)
    for waiting in _in_queue_order(scenario):
        check_no_false_wait(scenario, waiting)
    check_no_deadlock(scenario)
    check_no_blocked_repair(scenario)
    check_started_anew(scenario)
    held_off = [gang.id for gang in scenario.leader.cache.gangs.values() if gang.growth.held_off is not None]
    assert not held_off, f"I13: {held_off} wait for ever to grow"
    check_minimum_resources(scenario)
    check_reasons(world)
    check_nominated_nodes(world)
    check_seats_fit(scenario)
    check_claims(scenario)
    check_binds_exist(scenario)
    check_nominated_capacity(scenario)
    check_evicted(scenario)
    check_evictions_were_useful(world)
    known = scenario.leader.cache.gangs
    for record in scenario.etcd.values():
        found = known.get(record.gang)
        assert found is not None, f"I5: the record of {record.gang} exists, but not the gang"
        wanted = found.seats or found.lost
        assert wanted or not record.seats, f"I5: {record.gang} has seats in its record only"


def check_no_false_wait(scenario: Scenario, group: Group) -> None:
    """I7: a queued group does not fit into the free capacity that is not nominated for others."""
    cache = scenario.leader.cache
    nominated = as_amounts(
        nominated_for_others(group, cache.nominations.values(), cache.ledger, scenario.now), cache.ledger
    )
    asked = to_place(group, cache.ledger, cache.trees, cache.gangs)
    (answer,) = scenario.first_fit(Solve(0, {}, cache.ledger.reservations(), (asked,), nominated))
    uncounted = answer.outcome is SolveOutcome.PLACED and _has_uncounted_claims(scenario, asked, answer)
    assert answer.outcome is not SolveOutcome.PLACED or uncounted, f"I7: {group.id} fits and is not placed"


def _has_uncounted_claims(scenario: Scenario, asked: SolveGroup, answer: SolveResult) -> bool:
    """Members are placed of which none requests the devices of the claim that they share: it is a member of another
    subgroup.
    """
    roles = {each.id: each.roles for each in asked.gangs}
    kinds = [split_kind(roles[each.gang][each.role].class_id)[0] for each in answer.assignments]
    classes = [scenario.cluster.class_of(kind) for kind in kinds]
    shared = {term.selector for each in classes for term in each.shared_claims}
    counted = {term.selector for each in classes for term in each.shared_claims if GPUS in dict(each.requests)}
    return not shared <= counted


def check_minimum_resources(scenario: Scenario) -> None:
    """I7: a gang that waits for its minimum resources waits only while they are not free."""
    ledger = scenario.leader.cache.ledger
    reserved = sum(scenario.cluster.class_cpu(seat.class_id) for seat in ledger.reserved.values())
    free = scenario.cluster.free()
    open_ = [facts.name for facts in scenario.cluster.nodes.values() if facts.ready and not facts.unschedulable]
    in_all = sum(max(0, free[name]) for name in open_) - reserved
    for found in scenario.leader.cache.gangs.values():
        if (found.group.not_ready or "").startswith("its minimum resources are not free"):
            assert found.facts is not None
            wanted = dict(found.facts.resources)["cpu"]
            assert in_all < wanted, (
                f"I7: {found.id} requires {wanted} free cpu in the cluster and is pending with {in_all} free"
            )


def _in_queue_order(scenario: Scenario) -> list[Group]:
    return sorted(scenario.leader.queue.groups.values(), key=lambda group: (group.key, group.id))


def check_no_deadlock(scenario: Scenario) -> None:
    """Checks that no queued group could start with reservations of groups behind it."""
    groups = _in_queue_order(scenario)
    ledger = scenario.leader.cache.ledger
    reservations = ledger.reservations()
    for rank, group in enumerate(groups):
        held = {other.id: tuple(_held(other, ledger)) for other in groups[rank + 1 :]}
        potential_victims = tuple(PotentialVictim(id_, 0, 0, pods) for id_, pods in held.items() if pods)
        if not potential_victims:
            continue
        (answer,) = scenario.first_fit(
            Solve(
                0,
                {},
                reservations,
                (to_place(group, ledger, scenario.leader.cache.trees, scenario.leader.cache.gangs),),
                potential_victims=potential_victims,
            )
        )
        names = [removed.id for removed in answer.victims]
        assert answer.outcome is not SolveOutcome.PLACED, f"deadlock: {group.id} waits for capacity that {names} hold"


def check_no_blocked_repair(scenario: Scenario) -> None:
    """I6: no gang below its minimum could run with capacity of gangs under repair behind it, unless it has to pause."""
    leader = scenario.leader
    cache, ledger = leader.cache, leader.cache.ledger
    for group in _in_queue_order(scenario):
        victims = leader._repairs.yielding_to(group)
        lacks_pods = any(len(gang.pending) < gang.must_place_to_run for gang in group.gangs_to_place)
        if not victims or lacks_pods or group.preemption.not_before > scenario.now or group in cache.nominations:
            continue
        offered = {
            gang.id: tuple(
                PodsOnNode(pod.node, ledger.kind(pod.class_id, pod.label_set), 1)
                for pod in (gang.pods[uid] for uid in gang.bound)
            )
            for gang in victims
        }
        nominated = nominated_for_others(group, cache.nominations.values(), ledger, scenario.now)
        (answer,) = scenario.first_fit(
            Solve(
                0,
                {},
                ledger.reservations(),
                (to_place(group, ledger, cache.trees, cache.gangs, to_run=True),),
                as_amounts(nominated, ledger),
                tuple(PotentialVictim(id_, 0, 0, pods) for id_, pods in offered.items()),
            )
        )
        names = [removed.id for removed in answer.victims]
        assert answer.outcome is not SolveOutcome.PLACED, f"I6: {group.id} waits for capacity that {names} hold"


def check_started_anew(scenario: Scenario) -> None:
    """I6: a gang below its minimum that has all pods to start anew, and no other way to its minimum, has done so."""
    repairs = scenario.leader._repairs
    for found in scenario.leader.cache.gangs.values():
        if found.facts is None or found.facts.match_policy is not MatchPolicy.ONLY_WAITING:
            continue
        if not (found.started and found.broken) or found.lost or not repairs._may_be_evicted(found):
            continue
        again = [uid for uid in (*found.pending, *found.bound) if not found.pods[uid].uncontrolled]
        rests = found.pending and found.bound and not found.in_transition and len(again) >= found.facts.minimum
        assert not rests, f"I6: {found.id} rests at {len(found.bound)} of {found.facts.minimum}"


def _held(group: Group, ledger: Ledger) -> list[PodsOnNode]:
    return [
        PodsOnNode(held.seat.node, ledger.kind(held.seat.class_id, held.seat.label_set), 1)
        for gang in group.gangs
        if not gang.permitted
        for held in gang.seats.values()
    ]


def check_reasons(world: World) -> None:
    """I10: every pending gang has a reason, and the reported reasons are current."""
    leader, conditions = world.scenario.leader, world.oracle.reported

    def reported_of(uid: str) -> tuple[str, str] | None:
        condition = conditions.get(uid)
        return (condition.reason, condition.message) if condition is not None else None

    for found in leader.cache.gangs.values():
        why = reason(found)
        if found.pending:
            assert why, f"I10: {found.id} is pending without a reason"
        for uid in found.pending:
            reported, wait = reported_of(uid), wait_of(found, leader.cache)
            true = (wait.reason, why)
            if wait is Wait.FAILED and reported is not None:  # an attempt that failed does not change the reason
                true = (reported[0], why)
            assert reported == true, f"I10: {uid} has the condition {reported}, the true one is {true}"
        for uid in found.invalid:
            reported, true = reported_of(uid), (Wait.BLOCKED_POD.reason, found.pods[uid].problem)
            assert reported == true, f"I10: {uid} has the condition {reported}, the true one is {true}"
        for pod in found.pods.values():
            if pod.timed_out and not pod.node:
                assert why, f"I10: {found.id} has timed out without a reason"


def check_nominated_nodes(world: World) -> None:
    """Pods that are not bound have the nominated node on which they hold capacity, and none if they hold none (I5)."""
    cache = world.scenario.leader.cache
    left = {group: Counter(each.capacity) for group, each in cache.nominations.items()}
    for group, nomination in cache.nominations.items():
        left[group].subtract((seat.node, seat.class_id) for seat in nomination.arrived)
    for pod in world.scenario.cluster.pods.values():
        gang = cache.gang_of.get(pod.uid)
        if gang is None or pod.node or pod.deleting or pod.phase.ended:
            continue
        node, held = pod.nominated_node, gang.seats.get(pod.uid)
        if held is not None:
            assert node == held.seat.node, f"nominated nodes: {pod.uid} has {node!r}, its seat is on {held.seat.node}"
        elif node:
            key = (node, pod.class_id)
            nominated = gang.group in left and left[gang.group][key] > 0
            assert nominated, f"I5: {pod.uid} has the nominated node {node}, where it holds nothing"
            left[gang.group][key] -= 1


def check_seats_fit(scenario: Scenario) -> None:
    """I3: no gang holds seats on removed or overcommitted nodes."""
    cache = scenario.leader.cache
    for found in cache.gangs.values():
        for held in found.seats.values():
            full = cache.ledger.overcommitted(held.seat.node, held.seat.class_id)
            assert not full, f"I3: {held.seat.uid} holds a seat on {held.seat.node}, which has no capacity for it"


def check_claims(scenario: ObservedScenario) -> None:
    """I5, I6: no claim of a pod is allocated unless the pod is bound or holds a seat; bound pods have their devices.
    Not checked for pods that others placed.
    """
    if not scenario.cluster.device_objects:
        return
    gang_of = scenario.leader.cache.gang_of
    for claim in scenario.claims.all():
        if is_shared(claim.name):
            _check_shared(scenario, claim)
        if claim.allocation is None or claim.owner not in scenario.cluster.pods:
            continue
        pod = scenario.cluster.pods[claim.owner]
        seated = pod.uid in gang_of and pod.uid in gang_of[pod.uid].seats
        assert pod.node or seated, f"I5: {claim.id} is allocated, and {pod.uid} is pending"
    for pod in scenario.cluster.pods.values():
        if pod.seated:
            ready = scenario.claims.are_ready(pod, extended=pod.uid in scenario.claims.with_extended)
            assert ready, f"I6: {pod.uid} runs on {pod.node} without its devices"


def _check_shared(scenario: ObservedScenario, claim: Claim) -> None:
    """I5: of the pods for which a claim that pods share is reserved one at least is bound or holds a seat."""
    gang_of = scenario.leader.cache.gang_of
    users = [pod for pod in scenario.cluster.pods.values() if {pod.uid, pod.group_uid} & set(claim.allocated_to)]
    used = any(pod.node or (pod.uid in gang_of and pod.uid in gang_of[pod.uid].seats) for pod in users)
    assert used or not users, f"I5: {claim.id} is allocated, and {[pod.uid for pod in users]} are pending"


def check_binds_exist(scenario: Scenario) -> None:
    """I4, I6: the coordinator believes in no bind that a restore of the API server has undone."""
    for found in scenario.leader.cache.gangs.values():
        seats = {uid: seat.node for uid, seat in found.acknowledged.items()}
        for uid, node in {**seats, **{uid: found.pods[uid].node for uid in found.bound}}.items():
            there = scenario.cluster.pods[uid].node
            assert there == node, f"I4: {uid} counts as bound to {node}, and is on {there or 'no node'}"


def check_nominated_capacity(scenario: Scenario) -> None:
    """Checks that capacity is nominated only while victims terminate, and only where the group can use it; or while
    placement's answers for it are rejected.
    """
    cache = scenario.leader.cache
    for nomination in cache.nominations.values():
        going = [uid for uid in nomination.leaving if uid in scenario.cluster.pods]
        if "could not be used" in nomination.group.queueing.failure:  # until the nomination ends, after its time
            continue
        assert going, f"nomination: capacity is nominated for {nomination.owner}, but no pod is evicted there"
        assert nomination.feasible(cache.ledger), (
            f"nomination: capacity is nominated for {nomination.owner} that it cannot use"
        )


def check_evicted(scenario: Scenario) -> None:
    """I6: planned evictions are carried out unless the API server rejects them."""
    for found in scenario.leader.cache.gangs.values():
        for uid in found.eviction.pods:
            pod = scenario.cluster.pods[uid]
            budgets = [scenario.cluster.budgets[name] for name in pod.budgets if name in scenario.cluster.budgets]
            refused = any(budget.allowed < 1 for budget in budgets)
            assert refused, f"I6: {uid} is to be evicted, and the eviction is not sent"


def check_evictions_were_useful(world: World) -> None:
    """I9: without disturbance, every gang for which pods were evicted has started.

    Not checked for groups that inter-pod rules concern, by a rule of their own or by labels that another pod's rule
    selects: nominated capacity does not keep pods away that must not be beside theirs, and the pod that they must be
    beside may leave before they start. For these groups only the plan of each eviction is checked (`check_eviction`).
    """
    gangs = world.scenario.leader.cache.gangs
    for gang_id in world.oracle.preempted_for - world.oracle.obstructed:
        gang = gangs.get(gang_id)
        useful = gang is None or gang.permitted or _is_ruled(world.scenario, gang.group)
        assert useful, f"I9: pods were evicted for {gang_id}, which does not start"


def _is_ruled(scenario: Scenario, group: Group) -> bool:
    """Inter-pod rules concern a pod of the group."""
    cluster = scenario.cluster
    for pod in (pod for each in group.gangs for pod in each.pods.values()):
        own = cluster.class_of(pod.class_id)
        if own.required_pod_affinity or own.required_pod_anti_affinity:
            return True
        if any(selects(name, pod.label_set) for name in cluster.selectors):
            return True
    return False


def _delete_all(world: World) -> None:
    scenario = world.scenario
    scenario.change(remove_gangs=list(scenario.cluster.gangs), remove_pods=list(scenario.cluster.pods))
    if objects := [DeviceObject(kind, name) for kind, name in scenario.cluster.device_objects]:
        scenario.change(device_objects=objects)
    world.calm(PROBE_SECONDS)


def check_nothing_left(world: World) -> None:
    """I5: nothing is left of deleted gangs."""
    scenario = world.scenario
    cache = scenario.leader.cache
    assert not scenario.etcd, f"I5: records remain: {sorted(scenario.etcd)}"
    assert not cache.ledger.reserved, f"I5: reservations remain: {sorted(cache.ledger.reserved)}"
    assert not cache.ledger.capacity.seats, "I5: capacity is used by pods that do not exist"
    assert not cache.gangs, f"I5: gangs remain: {sorted(cache.gangs)}"
    assert not cache.groups, f"I5: groups remain: {sorted(cache.groups)}"
    assert not len(scenario.leader.queue), "I5: groups remain in the queue"
    devices = cache.ledger.devices
    assert not (devices.has_allocations or devices.has_bound_pods), "I5: devices of pods remain that are gone"


def check_capacity_is_free(world: World) -> None:
    """I7: a gang of the size of the cluster starts, so no capacity is reserved, nominated or leaked."""
    scenario = world.scenario
    open_nodes = {
        name: dict(facts.allocatable)["cpu"] // 1000
        for name, facts in scenario.cluster.nodes.items()
        if name != FOREIGN_NODE and facts.ready and not facts.unschedulable
    }
    room = sum(open_nodes.values())
    if not room:
        return
    probe = gang("probe").of(room).recreated(str(world.number()))
    scenario.add(probe)
    scenario.pass_time(PROBE_SECONDS)
    assert scenario.bound("probe") == room, (
        f"I7: a gang does not start on empty nodes: {reason(scenario.gang('probe'))}"
    )
    pods = [pod for pod in scenario.cluster.pods.values() if pod.gang == probe.id]
    assert all(pod.phase is PodPhase.RUNNING for pod in pods)
    record = scenario.etcd.get(probe.id)
    assert record is not None and record.state is RecordState.SATISFIED, (
        "records: a gang runs whole and is not Satisfied"
    )
