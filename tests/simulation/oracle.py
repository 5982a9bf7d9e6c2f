"""The oracle: checks the invariants at every step of a simulated scenario."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from builders.core.invariants import check_reservations
from muster.coordinator.core.backfill.expected_completions import OVERRUN_SECONDS
from muster.coordinator.core.effects import (
    Bind,
    Effect,
    Evict,
    MarkTimedOut,
    Persist,
    Phase,
    PhaseChanged,
    PodCondition,
    Report,
    Solve,
    StageChanged,
)
from muster.coordinator.core.events import RecordState
from muster.coordinator.core.gang.gang import Gang, Group
from muster.coordinator.core.gang.subgroups import gang_id_of
from muster.coordinator.core.machine import Machine
from muster.coordinator.core.preemption.nomination import Nomination
from muster.coordinator.core.preemption.plan import INITIAL_PAUSE_SECONDS
from muster.coordinator.core.queue.pre_enqueue import could_be_free
from muster.coordinator.core.report.explain import progress_of, stage_of
from muster.dialects.progress import Stage
from muster.gangs.facts import PodFacts
from simulation.effect_checks import (
    check_bound_devices,
    check_bound_ranks,
    check_bound_volumes,
    check_chosen_devices,
    check_chosen_volumes,
    check_claims_first,
    check_conditions,
    check_eviction,
    check_ranks,
    check_records,
)
from simulation.gang_checks import check_bound, check_members, check_progress, check_run, check_sent, check_stage
from simulation.subgroup_checks import (
    check_composites,
    check_shrunk,
    check_subgroups,
    lacks_members,
    part_of,
    part_of_request,
)
from simulation.turn_checks import Turns

if TYPE_CHECKING:
    from builders.core.scenario import Scenario

_PREEMPTION_ENDS = (Phase.BINDING, Phase.SATISFIED, Phase.TIMED_OUT, Phase.REPAIRING, Phase.ENDED)
"""Preemption succeeded; or evictions were rejected for too long; or the gang continues pod by pod."""
SLACK_SECONDS = 1.0
"""Rounding to milliseconds, and one step."""
MAX_CHECKED = 64
"""Gangs that are checked after one step. Floods and crowds have more: these are checked in turns, since most steps
change few of them.
"""


class Oracle:
    """State that the checks need from step to step."""

    def __init__(self) -> None:
        self.reported: dict[str, PodCondition] = {}
        """Last reported condition by pod uid."""
        self.preempted_for: set[str] = set()
        """Gangs for which pods were evicted and that have not started since, nor any of their group: a composite may
        need some of its gangs only."""
        self.obstructed: set[str] = set()
        """Gangs for which an eviction was rejected."""
        self._phases: dict[str, Phase] = {}
        self._stages: dict[str, Stage] = {}
        self._holds: dict[
            str, tuple[float, float]
        ] = {}  # gang id -> since when it waits with reservations, both clocks
        self._timed_out: dict[str, frozenset[object]] = {}  # gang id -> what it was then
        self._permitted: set[str] = set()
        """Gangs with a permit after the last step."""
        self._released_for: dict[str, str] = {}  # gang id -> group for which it gave its reservations back
        self._nominated: dict[tuple[Nomination, bool, bool], float] = {}
        """Since when capacity is nominated, by nomination, whether evictions have begun and victims are gone."""
        self._paused: dict[Group, float] = {}
        """Until when nothing may be evicted for a group whose capacity was taken."""
        self._short: dict[Gang, float] = {}
        """Since when gangs wait for minimum resources, without a break."""
        self._held: set[str] = set()
        """Pods that held reservations without a permit after the last step."""
        self._turns = Turns()
        self._shrunk: dict[tuple[str, str, str], tuple[float, float, frozenset[str]]] = {}
        """When it was decided to evict surplus pods of a gang, the difference of the clocks then, and which pods, by id
        and incarnation."""
        self._evicted: set[str] = set()
        """Pods that were evicted, under any leader."""
        self._lent: set[str] = set()
        """Pods that were placed on reserved capacity as surplus, under any leader."""
        self._leader: Machine | None = None
        self._checked = 0
        """Gangs of a large scenario that had their turn."""

    def evicted(self, scenario: Scenario, pod: PodFacts, *, refused: bool) -> None:
        """Records an eviction or its rejection; after a rejection earlier evictions may have been in vain."""
        if not refused:
            self._evicted.add(pod.uid)
        if scenario.machine is None:
            return
        cache = scenario.machine.cache
        gang = cache.gangs.get(pod.gang)
        owners = {nomination.owner for nomination in cache.nominations.values()}  # others do not need it any more
        if gang is not None and gang.eviction.preemptor in owners:
            (self.obstructed if refused else self.preempted_for).add(gang.eviction.preemptor)

    def unmarked(self, gang_id: str) -> None:
        """Records that a user removed timeout marks."""
        self._timed_out.pop(gang_id, None)

    def restored(self, reported: dict[str, PodCondition]) -> None:
        """The API server's objects, with these conditions of pods, are those of a backup: evicted pods live again."""
        self.reported = dict(reported)
        self.preempted_for.clear()

    # -- effects

    def take(self, scenario: Scenario, effect: Effect) -> None:
        """Checks an effect."""
        self._new_term(scenario)
        self._forget_edited(scenario.leader)
        match effect:
            case PhaseChanged(gang_id, before, after):
                assert self._phases.get(gang_id) is before, (
                    f"phases: {gang_id} was {self._phases.get(gang_id)}, not {before}"
                )
                if after is None:
                    self._phases.pop(gang_id, None)
                else:
                    self._phases[gang_id] = after
                if after in _PREEMPTION_ENDS:
                    gang = _gang(scenario, gang_id)
                    self.preempted_for -= {gang_id, *(each.id for each in (gang.group.gangs if gang else ()))}
                if after in (Phase.WAITING, Phase.PERMITTED, Phase.BINDING) and (gang := _gang(scenario, gang_id)):
                    self._paused.pop(gang.group, None)
            case StageChanged(gang_id):
                self._staged(scenario.leader, gang_id)
            case Report():
                check_conditions(scenario, effect)
                self.reported.update((condition.uid, condition) for condition in effect.conditions)
                reasons = {event.reason for event in effect.events}
                if reasons & {"CapacityTaken", "VictimsRemain"}:
                    self.obstructed.add(effect.gang)
                if "CapacityTaken" in reasons and (gang := _gang(scenario, effect.gang)):
                    self._paused[gang.group] = scenario.now + INITIAL_PAUSE_SECONDS
                if "ReservationReleased" in reasons:
                    self._released_for[effect.gang] = _asked_for(scenario.solves, effect.gang)
            case Solve():
                newest = scenario.cluster.revision
                assert effect.min_revision.get("pods", 0) <= newest, (
                    f"I7: a solve waits for revision {effect.min_revision}, and the newest is {newest}"
                )
                self._solve(scenario.leader, effect)
                self._check_growth(scenario, effect)
                self._turns.check(scenario, effect)
            case Persist():
                self._note_shrunk(scenario, effect)
                check_records(scenario.leader, effect)
                check_subgroups(scenario, effect)
                check_composites(scenario, effect)
                check_shrunk(scenario, effect)
                check_ranks(scenario, effect)
                check_chosen_volumes(scenario.leader)
                check_chosen_devices(scenario, effect)
            case Bind():
                check_bound_ranks(scenario, effect)
                check_bound_volumes(scenario, effect)
                check_claims_first(scenario, effect)
                check_bound_devices(scenario, effect)
            case Evict():
                check_eviction(scenario, effect, self._lent)
            case MarkTimedOut(gang_id, _, True):
                gang = scenario.leader.cache.gangs[gang_id]
                if gang.timed_out:  # else there are enough others
                    self._timed_out[gang_id] = _fingerprint(gang)
            case MarkTimedOut(gang_id):
                self._timed_out.pop(gang_id, None)
            case _:
                pass

    def _staged(self, leader: Machine, gang_id: str) -> None:
        gang = leader.cache.gangs.get(gang_id)
        if gang is None or (progress := progress_of(gang, leader.cache)) is None:
            self._stages.pop(gang_id, None)
            return
        self._stages[gang_id] = progress.stage
        check_progress(gang, progress)

    def _forget_edited(self, leader: Machine) -> None:
        """Forgets timeouts of gangs that were changed since."""
        for gang_id, fingerprint in list(self._timed_out.items()):
            gang = leader.cache.gangs.get(gang_id)
            if gang is None or _fingerprint(gang) != fingerprint:
                del self._timed_out[gang_id]

    def _new_term(self, scenario: Scenario) -> None:
        if scenario.machine is not self._leader:
            self._leader = scenario.machine
            self._phases.clear()
            self._stages.clear()
            self._holds.clear()
            self._permitted.clear()
            self._released_for.clear()
            self._nominated.clear()
            self._short.clear()
            self._paused.clear()
            self._turns.forget()
            self._term_began = scenario.now
            # The new leader knows hold-offs by the wall clock only: one that has jumped since may have ended them.
            self._shrunk = {key: each for key, each in self._shrunk.items() if each[1] == scenario.unix_ahead}
            waiting = [record for record in scenario.etcd.values() if record.waiting_since_unix_millis]
            gangs = scenario.cluster.gangs  # one that was declared anew begins anew
            waiting = [
                each for each in waiting if each.gang in gangs and gangs[each.gang].incarnation == each.incarnation
            ]
            self._inherited = {
                record.gang: max(0.0, scenario.unix - record.waiting_since_unix_millis / 1000) for record in waiting
            }

    def _solve(self, leader: Machine, solve: Solve) -> None:
        for group in solve.groups:
            for asked in group.gangs:
                assert asked.id not in self._timed_out, f"timeout: {asked.id} is tried again although it was not edited"
                gang = leader.cache.gangs[gang_id_of(asked.id)]
                wanted = sum(role.wanted for role in asked.roles)
                free = sum(not (pod.node or pod.timed_out or pod.gated or pod.deleting) for pod in gang.pods.values())
                assert 1 <= asked.minimum <= wanted <= free, (
                    f"solve: {asked} is requested for {free} pending pods of {asked.id}"
                )

    def _note_shrunk(self, scenario: Scenario, persist: Persist) -> None:
        for gone in [key for key in self._shrunk if key[0] in persist.deletes]:
            del self._shrunk[gone]  # the hold-off ends with the record; a backup may bring the gang back without it
        for record in persist.puts:
            gang, key = scenario.leader.cache.gangs[record.gang], (record.gang, record.incarnation)
            ends = record.state is RecordState.UNPERMITTED
            if ends or (record.state is RecordState.BINDING and not gang.permitted):
                self._forget_shrunk(key)  # a new run begins, or this one ends
            uids = frozenset(pod.uid for pod in record.evicting)
            known = frozenset[str]().union(*(each[2] for at, each in self._shrunk.items() if at[:2] == key))
            if record.evicted_for and not ends and not uids <= known:
                self._evicted -= uids  # those that were, before a restore
                for part in {part_of(gang, uid) for uid in uids}:
                    self._shrunk[*key, part] = (scenario.now, scenario.unix_ahead, uids)
            elif known and not uids and not known & self._evicted:
                self._forget_shrunk(key)  # nothing was evicted after all

    def _forget_shrunk(self, gang: tuple[str, str]) -> None:
        for key in [key for key in self._shrunk if key[:2] == gang]:
            del self._shrunk[key]

    def _check_growth(self, scenario: Scenario, solve: Solve) -> None:
        """A subgroup that was shrunk, or the members in none, of a gang that has its minimum does not grow before its
        hold-off is over, unless it runs and lacks members.
        """
        for asked in (asked for group in solve.groups for asked in group.gangs):
            gang = scenario.leader.cache.gangs[gang_id_of(asked.id)]
            incarnation = gang.facts.incarnation if gang.facts is not None else ""
            never = -math.inf, -math.inf, frozenset[str]()
            part = part_of_request(asked.id)
            since, ahead, uids = self._shrunk.get((gang.id, incarnation, part), never)
            passed = scenario.now - since
            if passed >= scenario.rules.growth_hold_off_seconds - SLACK_SECONDS or not gang.has_minimum:
                continue
            if ahead != scenario.unix_ahead:
                continue  # the next leader knows the wall clock only, which jumped
            if not scenario.undone_binds.isdisjoint(gang.pods):
                continue  # its run may have ended at a restore, with the pods that the backup does not have
            if not lacks_members(gang, part):
                assert not uids & self._evicted, f"growth: {asked.id} grows {passed} s after it was shrunk"

    # -- state after a step

    def step_done(self, scenario: Scenario, leader: Machine, *, idle: bool) -> None:
        """Checks the state after a step; an idle step has changed only the time."""
        self._new_term(scenario)
        cache = leader.cache
        if leader.synced:  # one that comes back from a backup begins anew
            self._inherited = {id_: waited for id_, waited in self._inherited.items() if id_ in cache.gangs}
        self._check_nominations(scenario, leader)
        self._check_held_share(scenario, leader)
        self._check_short(scenario, leader)
        gangs = self._in_turn(list(cache.gangs.values()))
        if idle:
            for gang in gangs:
                self._check_hold(scenario, gang)
            return
        self._forget_edited(leader)
        check_reservations(cache)
        self._settle_nodes(scenario, leader)
        for gang in gangs:
            phase, group, reported = gang.phase, gang.group, self._phases.get(gang.id)
            check_members(gang)
            check_run(gang, phase)
            self._check_adopted(scenario, gang)
            check_sent(gang)
            check_bound(scenario, gang, scenario.undone_binds)
            assert reported is phase, f"phases: {gang.id} is {phase!r}, {reported!r} was reported"
            self._check_hold(scenario, gang)
            if gang.facts is not None and not gang.plain:
                stage = stage_of(gang, phase)
                assert self._stages.get(gang.id) is stage, f"stages: {gang.id} is {stage}, which was not reported"
                check_stage(gang, stage)
            waits = group not in leader.queue and group.wants_seats
            assert not waits, f"I7: {group.id} wants seats and is not in the queue"
        self._check_released(leader)
        self._check_loans(leader)
        for nomination in cache.nominations.values():
            known = cache.groups.get(nomination.group.id) is nomination.group
            wanted = nomination.group.busy or nomination.group.wants_seats
            assert known and wanted, f"nomination: capacity is nominated for {nomination.owner}, which is not pending"

    def _in_turn(self, gangs: list[Gang]) -> list[Gang]:
        """The gangs that are checked after this step: all, unless there are many."""
        if len(gangs) <= MAX_CHECKED:
            return gangs
        first = self._checked % len(gangs)
        self._checked += MAX_CHECKED
        return (gangs[first:] + gangs[:first])[:MAX_CHECKED]

    def _check_held_share(self, scenario: Scenario, leader: Machine) -> None:
        """I13: gangs that wait take no more than their share of the cluster."""
        holding = [gang for gang in leader.cache.gangs.values() if gang.seats and not gang.permitted]
        waiting = [gang for gang in holding if gang.group.non_strict and not gang.group.holds_minimum]
        held = {uid: seat for gang in waiting for uid, seat in gang.seats.items()}
        more = held.keys() - self._held
        self._held = {uid for gang in holding for uid in gang.seats}
        capacity = leader.cache.ledger.capacity
        cpu = capacity.resources.get("cpu")
        if more and cpu is not None:
            taken = sum(scenario.cluster.class_cpu(each.seat.class_id) for each in held.values())
            most = scenario.rules.max_held_share * int(capacity.allocatable[:, cpu].sum())
            assert taken <= most, f"I13: gangs that wait hold {taken} of {most} millicores"

    def _check_short(self, scenario: Scenario, leader: Machine) -> None:
        """I13: gangs wait for minimum resources that the cluster has only until others starve."""
        since, self._short = self._short, {}
        ledger, most = leader.cache.ledger, scenario.rules.starvation_after_seconds
        for gang in leader.cache.gangs.values():
            waits = (gang.group.not_ready or "").startswith("its minimum resources are not free")
            if waits and gang.facts is not None and could_be_free(gang.facts.resources, ledger):
                self._short[gang] = since.get(gang, scenario.now)
                waited = scenario.now - self._short[gang]
                assert waited <= 2 * most + SLACK_SECONDS, f"I13: {gang.id} waits {waited} s for minimum resources"

    def _check_nominations(self, scenario: Scenario, leader: Machine) -> None:
        """I13: nominations end in time, and none is made soon after another was in vain."""
        since, self._nominated = self._nominated, {}
        for kept in leader.cache.nominations.values():
            key = (kept, kept.evictions_begun, kept.ready)
            if not kept.backfill and not any(known is kept for known, _, _ in since):
                paused = kept.victims and scenario.now < self._paused.get(kept.group, 0.0)
                assert not paused, f"I13: {kept.owner} evicts again soon after a plan in vain"
            self._nominated[key] = since.get(key, scenario.now)
            kept_for, most = scenario.now - self._nominated[key], leader.rules.eviction_timeout_seconds
            if kept.backfill:
                most = leader.rules.reservation_timeout_seconds + OVERRUN_SECONDS
            assert not leader.synced or kept_for <= most + SLACK_SECONDS, (
                f"I13: capacity is kept for {kept.owner} for {kept_for} s"
            )

    def _check_loans(self, leader: Machine) -> None:
        """Reserved capacity is lent to surplus that can be evicted at once."""
        cache = leader.cache
        for nomination in cache.nominations.values():
            new = nomination.lent - self._lent
            self._lent |= new
            for uid in new & cache.gang_of.keys():
                gang = cache.gang_of[uid]
                pod, others = gang.pods[uid], gang.places - sum(other in nomination.lent for other in gang.seats)
                assert nomination.backfill, f"loans: {uid} borrows what is nominated for a preemptor"
                assert others + len(gang.succeeded) >= gang.required, f"loans: {uid} borrows, and {gang.id} needs it"
                assert not (pod.uncontrolled or pod.budgets), f"loans: {uid} borrows and may not be evicted"

    def _check_released(self, leader: Machine) -> None:
        """Checks that a gang that released its reservations takes none while the other group still waits."""
        cache = leader.cache
        for gang_id, group_id in list(self._released_for.items()):
            gang, others = cache.gangs.get(gang_id), cache.groups.get(group_id)
            if gang is None or gang.permitted or not gang.group.non_strict or others not in cache.nominations:
                del self._released_for[gang_id]
            else:
                assert not gang.seats, f"deadlock: {gang_id} holds seats again that it released for {group_id}"

    def _check_adopted(self, scenario: Scenario, gang: Gang) -> None:
        """I1: checks that a gang without a durable permit counts as started only if its minimum runs."""
        if not gang.permitted:
            self._permitted.discard(gang.id)
        elif gang.id not in self._permitted:
            self._permitted.add(gang.id)
            running = sum(pod.seated and not pod.deleting for pod in gang.pods.values())
            if gang.id not in scenario.etcd and not gang.plain and gang.facts is not None:
                assert running >= gang.required, f"I1: {gang.id} counts as started with {running} of {gang.required}"

    def _check_hold(self, scenario: Scenario, gang: Gang) -> None:
        """Checks that only NonStrict gangs hold reservations without a permit, and not beyond their waiting-time."""
        holds = not gang.permitted and gang.seats and gang.group.persist_id is None
        if not holds:
            self._holds.pop(gang.id, None)
            if gang.group.persist_id is not None:  # what it had waited is over, whatever becomes of the permit
                self._inherited.pop(gang.id, None)
            return
        facts = gang.facts
        assert facts is not None, f"hold: {gang.id} holds seats without a declaration"
        strict = [other.id for other in gang.group.gangs if other.facts and other.facts.starts_whole]
        assert not strict or gang.group.busy, f"hold: {gang.id} holds seats, {strict} of its group start whole"
        since = self._holds.setdefault(gang.id, self._since(scenario, gang.id, facts.waiting_time_seconds))
        assert facts.waiting_time_seconds <= scenario.rules.max_waiting_time_seconds, f"I13: {gang.id} may wait longer"
        if facts.waiting_time_seconds:
            waited = min(scenario.now - since[0], scenario.unix - since[1])
            most = facts.waiting_time_seconds + SLACK_SECONDS
            assert waited <= most, f"timeout: {gang.id} holds seats for {waited} s, {most} s at most"

    def _since(self, scenario: Scenario, gang_id: str, most: float) -> tuple[float, float]:
        """Returns since when the gang waits, by both clocks, if it begins to hold reservations now. Waiting under an
        earlier leader counts, unless it had ended before the gang got anything.
        """
        began = self._term_began - self._inherited.pop(gang_id, 0.0)
        earlier = scenario.now - began if began + most > scenario.now and began < self._term_began else 0.0
        return scenario.now - earlier, scenario.unix - earlier

    def _settle_nodes(self, scenario: Scenario, leader: Machine) -> None:
        """Checks I3 in the coordinator's ledger on all nodes that no other scheduler overcommitted."""
        capacity = leader.cache.ledger.capacity
        full = np.flatnonzero((capacity.used > capacity.allocatable).any(axis=1)).tolist()
        over = {capacity.names[row] for row in full}
        if scenario.shared_nodes and not scenario.under_way and not scenario.stream:
            free = scenario.cluster.free()
            short = {name for name in scenario.shared_nodes if free.get(name, -1) < 0}
            scenario.shared_nodes &= over | short | scenario.claims.nodes_with_lost_devices()
        spoiled = over & leader.cache.ledger.nodes.keys() - scenario.shared_nodes
        if spoiled and scenario.stream:  # it may hear late of pods of which binding has told it that they are gone
            known = (pod for gang in leader.cache.gangs.values() for pod in gang.pods.values())
            spoiled -= {pod.node for pod in known if pod.uid not in scenario.cluster.pods}
        assert not spoiled, f"I3: more is reserved on {sorted(spoiled)} than they have"


def _gang(scenario: Scenario, gang_id: str) -> Gang | None:
    return scenario.leader.cache.gangs.get(gang_id)


def _asked_for(solves: Sequence[Solve], gang_id: str) -> str:
    """Returns the group of the last solve that offered the gang's reservations."""
    asked = (solve for solve in reversed(solves) if any(each.id == gang_id for each in solve.potential_victims))
    return next(asked).groups[0].id


def _fingerprint(gang: Gang) -> frozenset[object]:
    """Returns what users may change of a gang: its declaration, its pods and its timeout marks."""
    pods: set[object] = {
        (pod.uid, pod.class_id, pod.node, pod.phase, pod.deleting, pod.gated) for pod in gang.pods.values()
    }
    facts = gang.facts
    if facts is None:
        return frozenset(pods)
    pods.add(sum(pod.timed_out for pod in gang.pods.values()) + len(gang.hold.marking))
    declared = (facts.incarnation, facts.minimum, facts.total, facts.mode, facts.group, facts.waiting_time_seconds)
    return frozenset([declared, *pods])
