"""Checks of effects of the coordinator before they are carried out: records, binds and evictions."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from builders.core.device_claims import extended_name
from builders.core.shared_claims import is_shared
from muster.coordinator.core.effects import Bind, Evict, Persist, Report
from muster.coordinator.core.events import Record, RecordState, Seat
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.gang.state import ActionState
from muster.coordinator.core.machine import Machine
from muster.coordinator.core.report.waits import UNSCHEDULABLE, Wait
from muster.devices.extended_resources import EXTENDED_CLAIM
from muster.devices.facts import DeviceId
from muster.gangs.facts import LevelPolicy, MatchPolicy, PodPhase
from muster.topology.constraints import on_levels

if TYPE_CHECKING:
    from builders.core.scenario import Scenario


def check_records(leader: Machine, persist: Persist) -> None:
    """Checks records before they are written."""
    for record in persist.puts:
        gang = leader.cache.gangs.get(record.gang)
        assert gang is not None, f"record: {record.gang} is written and does not exist"
        unpermitted = record.state is RecordState.UNPERMITTED
        assert not (unpermitted and record.seats), f"record: {record.gang} has seats and no permit"
        if record.state is RecordState.BINDING and not gang.permitted:
            assert persist.awaited, f"I2: the permit of {gang.id} is written as if nothing waited for it"
            check_minimum(gang, record)
            check_uniform(cpu_by_class(leader), gang, record)
            check_constraints(leader, gang, record)
        elif record.seats and gang.started:
            check_resumed(gang)


def check_resumed(gang: Gang) -> None:
    """I1: of a gang of which some members have succeeded and no other has a place, what the minimum lacks starts."""
    new = all(held.state is ActionState.DECIDED and not held.repairs for held in gang.seats.values())
    holds = [pod.uid for pod in gang.pods.values() if pod.seated and not (pod.phase.ended or pod.deleting)]
    if not new or holds or gang.acknowledged or gang.lost or gang.facts is None:
        return
    succeeded, minimum = gang.succeeded_to_stay, gang.facts.minimum
    if 0 < succeeded < minimum:
        starting = len(gang.seats)
        assert starting + len(gang.succeeded) >= minimum, (
            f"I1: {starting} of {gang.id} start, and {succeeded} succeeded"
        )


def check_minimum(gang: Gang, record: Record) -> None:
    """I1: the minimum has seats or runs."""
    assert gang.facts is not None, f"I1: {gang.id} is permitted without a declaration"
    seats = {seat.uid for seat in record.seats}
    unbindable = {uid for uid in seats if (pod := gang.pods.get(uid)) is None or pod.node or pod.deleting or pod.gated}
    assert not unbindable, f"I1: {gang.id} is permitted with pods that cannot be bound: {sorted(unbindable)}"
    only_waiting = gang.facts.match_policy is MatchPolicy.ONLY_WAITING
    running = [] if only_waiting else [pod for pod in gang.pods.values() if pod.seated and not pod.deleting]
    starting, minimum = len(seats) + len(running), gang.facts.minimum
    if gang.facts.counts_succeeded and starting + len(gang.pending) < minimum:
        minimum -= sum(pod.phase is PodPhase.SUCCEEDED for pod in gang.pods.values())
    assert starting >= minimum, f"I1: {gang.id} is permitted with {starting} of {minimum}"


def cpu_by_class(leader: Machine) -> dict[str, int]:
    """Returns the cpu request of each class."""
    return {id_: dict(each.requests)["cpu"] for id_, each in leader.cache.ledger.classes.items()}


def check_uniform(cpu: dict[str, int], gang: Gang, record: Record) -> None:
    """Checks that the members of a uniform gang are equal."""
    if gang.facts is not None and gang.facts.uniform:
        sizes = {cpu[seat.class_id] for seat in record.seats}
        assert len(sizes) == 1, f"uniform: {gang.id} is permitted with pods that request {sorted(sizes)}"


def _may_know(scenario: Scenario, uid: str) -> bool:
    """The pod has its rank: it is bound, or a call that binds it is under way."""
    pod = scenario.cluster.pods.get(uid)
    binds = (effect for effect in scenario.under_way if isinstance(effect, Bind))
    return (pod is not None and bool(pod.node)) or any(seat.uid == uid for each in binds for seat in each.seats)


def check_ranks(scenario: Scenario, persist: Persist) -> None:
    """Checks that ranks are unique and constant once a pod may know them, and that starting members have the lowest."""
    for record in persist.puts:
        ranks, before = dict(record.ranks), _last_written(scenario, record.gang)
        assert len(ranks) == len(record.ranks) == len(set(ranks.values())), f"ranks: {record.gang} has duplicate ranks"
        if record.state is RecordState.BINDING and len(record.seats) > 1:
            unranked = [seat.uid for seat in record.seats if seat.uid not in ranks]
            assert not unranked, f"ranks: {unranked} of {record.gang} have no rank"
        if before is None or before.incarnation != record.incarnation:
            continue
        changed = [uid for uid, rank in before.ranks if ranks.get(uid, rank) != rank and _may_know(scenario, uid)]
        assert not changed, f"ranks: the ranks of {changed} of {record.gang} change"


def _last_written(scenario: Scenario, gang_id: str) -> Record | None:
    """Returns the gang's record once all pending writes are done."""
    last = scenario.etcd.get(gang_id)
    for write in (each for each in scenario.under_way if isinstance(each, Persist)):
        last = None if gang_id in write.deletes else last
        last = next((record for record in write.puts if record.gang == gang_id), last)
    return last


def check_bound_ranks(scenario: Scenario, effect: Bind) -> None:
    """I2: pods are bound with durable ranks."""
    for gang in effect.gangs:
        record = scenario.etcd[gang]
        assert effect.tries.get(gang) == record.tries, f"attempts: {gang} is bound with counts that are not recorded"
        given = {uid: rank for uid, rank in effect.ranks.items() if effect.gang_of(uid) == gang}
        assert given.items() <= dict(record.ranks).items(), f"ranks: {gang} is bound with ranks that are not recorded"


def check_claims_first(scenario: Scenario, effect: Bind) -> None:
    """I1: the first binds of a gang with claims are one request that waits for all volumes.

    Not checked of a gang that has run, of which a restore of the API server undid all binds: it is repaired.

    Not checked: that the request has all members. A member with claims may be late: enough others without claims have a
    seat, and their binds were sent before. They start whatever becomes of its volume, so that it does not leave the
    gang partial.
    """
    gang = scenario.leader.cache.gangs[effect.gang]
    if gang.bound or gang.acknowledged or not (effect.claims or effect.devices or effect.extended):
        return
    if scenario.etcd[effect.gang].met_minimum and not scenario.undone_binds.isdisjoint(gang.pods):
        return
    assert effect.claims_first, f"I1: {effect.gang} is bound before its volumes exist"
    if effect.partners:
        return  # checked at the bind
    others = {uid: held for uid, held in gang.seats.items() if uid not in {seat.uid for seat in effect.seats}}
    pods = {uid: gang.pods[uid] for uid in others}
    sent = all(
        held.state is not ActionState.DECIDED
        and not (pods[uid].claims or pods[uid].device_claims or scenario.cluster.class_of(pods[uid].class_id).extended)
        for uid, held in others.items()
    )
    late = sent and len(others) >= gang.required
    assert late or not others, f"I1: {effect.gang} is bound without the volumes of {sorted(others)}"


def check_chosen_volumes(leader: Machine) -> None:
    """I3: no static volume is chosen for two pods."""
    owners: dict[str, str] = {}
    for gang in leader.cache.gangs.values():
        for seat in (*gang.unbound_seats, *gang.acknowledged.values()):
            for _, volume in seat.volumes:
                other = owners.setdefault(volume, seat.uid)
                assert other == seat.uid, f"I3: volume {volume} is chosen for {other} and {seat.uid}"


def check_bound_volumes(scenario: Scenario, effect: Bind) -> None:
    """I2: pods with static claims are bound with volumes that are in the record."""
    recorded = {uid: seat.volumes for uid, seat in _recorded_seats(scenario, effect).items()}
    for seat in effect.seats:
        assert recorded.get(seat.uid) == seat.volumes, f"I2: {seat.uid} is bound with volumes that are not recorded"
        claims = [f"{seat.namespace}/{name}" for name in effect.claims.get(seat.uid, ())]
        wanted = [claim for claim in claims if claim in scenario.leader.cache.ledger.volumes.claims]
        chosen = {f"{seat.namespace}/{name}" for name, _ in seat.volumes}
        assert chosen.issuperset(wanted), f"I3: {seat.uid} is bound without volumes for {wanted}"


def check_chosen_devices(scenario: Scenario, effect: Persist) -> None:
    """I3: no device is in two permits, nor in a new one and allocated to another claim, as far as that was observed."""
    if not scenario.cluster.device_objects:
        return
    owners: dict[DeviceId, str] = {}
    for gang in scenario.leader.cache.gangs.values():
        for seat in (*gang.unbound_seats, *gang.acknowledged.values()):
            for name, allocation in seat.devices:
                claim = f"{seat.namespace}/{name}" if name != EXTENDED_CLAIM else seat.uid
                for each in allocation.results:
                    other = owners.setdefault(each.id, claim)
                    assert other == claim, f"I3: device {each.id} is chosen for {other} and {claim}"
    new = (
        held.seat
        for record in effect.puts
        for held in scenario.leader.cache.gangs[record.gang].seats.values()
        if held.state is ActionState.DECIDED
    )
    check_not_taken(scenario, new)


def check_not_taken(scenario: Scenario, seats: Iterable[Seat]) -> None:
    """I3: no device of the seats is allocated to a claim of others, as far as that was observed."""
    claims = scenario.leader.cache.ledger.devices.claims.values()
    allocated = {(each.id, claim.id) for claim in claims if claim.allocation for each in claim.allocation.results}
    for seat in seats:
        own = {f"{seat.namespace}/{name}" for name in (*dict(seat.devices), extended_name(seat))}
        taken = [id_ for device, id_ in allocated if device in _devices(seat) and id_ not in own]
        assert not taken, f"I3: devices of {taken} are used for {seat.uid}"


def _recorded_seats(scenario: Scenario, effect: Bind) -> dict[str, Seat]:
    """Durable seats of the pods by uid; a pod that moved to another gang may be in the record of the former, too."""
    seats = ((gang, seat) for gang in effect.gangs for seat in scenario.etcd[gang].seats)
    return {seat.uid: seat for gang, seat in seats if effect.gang_of(seat.uid) == gang}


def check_bound_devices(scenario: Scenario, effect: Bind) -> None:
    """I2: pods are bound with devices that are in the record, one allocation for each claim."""
    recorded = {uid: seat.devices for uid, seat in _recorded_seats(scenario, effect).items()}
    has_devices = effect.devices or effect.extended
    if has_devices:
        check_not_taken(scenario, effect.seats)
    for seat in effect.seats if has_devices else ():
        assert recorded.get(seat.uid) == seat.devices, f"I2: {seat.uid} is bound with devices that are not recorded"
        writes = effect.devices.get(seat.uid, ())
        wanted = {each.name for each in writes if each.allocation or not is_shared(each.name)}
        wanted |= {EXTENDED_CLAIM} if seat.uid in effect.extended else set()
        chosen = {name for name, _ in seat.devices}
        assert wanted == chosen, f"I3: {seat.uid} is bound with devices for {sorted(chosen)}, not for {sorted(wanted)}"


def _devices(seat: Seat) -> list[DeviceId]:
    return [each.id for _, allocation in seat.devices for each in allocation.results]


def check_constraints(leader: Machine, gang: Gang, record: Record) -> None:
    """Checks hard constraints of a Strict gang at its first start, by the tree in the coordinator's cache."""
    facts, cache = gang.facts, leader.cache
    if facts is None or not facts.constraints or gang.bound or gang.acknowledged or gang.group.non_strict:
        return
    tree = cache.trees.get(facts.tree)
    assert tree is not None, f"constraints: {gang.id} starts by a tree that does not exist"
    levels = [level.name for level in tree.levels]
    for each in on_levels(facts.constraints, levels):
        if each.hard and each.policy is LevelPolicy.PACK:
            level = levels.index(each.level)
            nodes = (cache.ledger.nodes[seat.node] for seat in record.seats)
            domains = {cache.trees.path(tree, node)[: level + 1] for node in nodes}
            assert len(domains) == 1, f"constraints: {gang.id} starts in {len(domains)} domains"


def check_eviction(scenario: Scenario, effect: Evict, lent: Collection[str]) -> None:
    """I9: evictions serve a plan that is still valid. `lent`: pods that were placed on reserved capacity as surplus."""
    record = scenario.etcd.get(effect.gang)
    assert record is not None, f"I9: {effect.gang} is evicted without a record"
    gangs = scenario.leader.cache.gangs
    victim = gangs[effect.gang]
    if not victim.eviction.preemptor:  # evicted by its own policy
        return
    if victim.eviction.whole and _half_gone(victim, effect, record):
        return
    preemptor, plan = gangs.get(victim.eviction.preemptor), scenario.etcd.get(victim.eviction.preemptor)
    assert preemptor is not None, f"I9: {effect.gang} is evicted for {victim.eviction.preemptor}, which does not exist"
    waiting = [pod for gang in preemptor.group.gangs_to_place for pod in gang.pending.values()]
    assert waiting, f"I9: {effect.gang} is evicted for {preemptor.id}, which is not pending"
    assert plan is not None and plan.nominated, f"I9: no capacity is nominated for the preemptor {preemptor.id}"
    if victim.eviction.revoked:
        others = [pod.uid for pod in effect.pods if pod.uid not in lent]
        assert not others, f"loans: {others} of {effect.gang} are evicted, to which no capacity was lent"
        return
    never_preempts = any(
        gang.facts is not None and gang.facts.never_preempts for gang in preemptor.group.gangs_to_place
    )
    assert not never_preempts and not any(pod.never_preempts for pod in waiting), f"I9: {preemptor.id} never preempts"
    live = [pod.priority for pod in victim.pods.values() if not (pod.phase.ended or pod.deleting)]
    members = [pod for gang in preemptor.group.gangs_to_place for pod in gang.pods.values()]
    right = min(pod.priority for pod in members if not (pod.phase.ended or pod.deleting))
    assert max(live, default=0) < right, f"I13: {effect.gang} {live} is evicted for {preemptor.id} ({right})"
    assert max(live, default=0) < 2_000_000_000, f"I13: {effect.gang} is evicted although it is critical to the system"


def _half_gone(victim: Gang, effect: Evict, record: Record) -> bool:
    """A pod of the gang leaves, or its eviction is under way: the rest is of no use, even without the preemptor."""
    again = {pod.uid for pod in effect.pods}
    return any(
        pod.uid not in again or pod.uid not in victim.pods or victim.pods[pod.uid].deleting for pod in record.evicting
    )


def check_conditions(scenario: Scenario, report: Report) -> None:
    """Checks that nodes are asked for only where they would help, and that members without a seat have one reason."""
    cache = scenario.leader.cache
    gang = cache.gangs.get(report.gang)
    if gang is None or not report.conditions:
        return
    nomination = cache.nominations.get(gang.group)
    asking = {condition.uid for condition in report.conditions if condition.reason == UNSCHEDULABLE}
    if asking:
        assert asking <= gang.pending.keys(), f"reasons: nodes for members of {gang.id} that have a seat"
        complete = gang.permitted or gang.counted >= gang.required
        assert complete and gang.facts is not None, f"reasons: nodes for {gang.id}, which is incomplete"
        assert not gang.eviction.whole, f"reasons: nodes for {gang.id}, which is being evicted"
        awaited = nomination is not None and not nomination.backfill
        assert not awaited, f"reasons: nodes for {gang.id}, whose capacity is nominated"
    for condition in report.conditions:
        node, held = condition.nominated_node, gang.seats.get(condition.uid)
        if node and held is not None:
            assert node == held.seat.node, f"nominated nodes: {condition.uid} has {node}, its seat is elsewhere"
        elif node:
            key = (node, gang.pods[condition.uid].class_id)
            nominated = nomination is not None and nomination.capacity[key]
            assert nominated, f"nominated nodes: {condition.uid} has {node}, where it holds nothing"
    reasons = {condition.reason for condition in report.conditions if condition.uid in gang.pending}
    if gang.facts is not None and gang.facts.subgroups and gang.growth.held_off is not None:
        reasons.discard(Wait.SHRUNK.reason)  # of subgroups that were shrunk, while others may grow
    assert len(reasons) <= 1, f"reasons: {gang.id} has {reasons} at the same time"
