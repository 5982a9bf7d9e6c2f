"""Checks of one gang of the coordinator after a step."""

from __future__ import annotations

from collections.abc import Collection, Container
from typing import TYPE_CHECKING

from muster.coordinator.core.effects import Phase
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.gang.state import ActionState
from muster.dialects.progress import Progress, Stage

if TYPE_CHECKING:
    from builders.core.scenario import Scenario


def check_members(gang: Gang) -> None:
    """Checks that every member is in one state only."""
    places: list[Collection[str]] = [gang.pending, gang.seats, gang.acknowledged, gang.bound]
    everywhere = set().union(*places)
    assert len(everywhere) == sum(map(len, places)), f"members: a pod of {gang.id} counts twice"
    assert everywhere <= gang.pods.keys(), f"members: {gang.id} counts pods that do not exist"
    assert not (gang.hold.marking.keys() & everywhere), (
        f"members: a pod of {gang.id} timed out and still counts as a member"
    )
    assert gang.lost.keys() <= gang.pending.keys(), f"members: {gang.id} repairs pods that are not pending"
    waits_for_permit = not gang.permitted and any(h.state is not ActionState.DECIDED for h in gang.seats.values())
    assert not waits_for_permit, f"I2: {gang.id} was sent to binding and has no permit"


def check_run(gang: Gang, phase: Phase) -> None:
    """I1: checks that a gang of which no member has a place starts whole again, and that a gang with fewer members than
    its minimum, or none, is not called satisfied.
    """
    places = len(gang.bound) + len(gang.seats) + len(gang.acknowledged) + len(gang.eviction.pods)
    over = gang.permitted and gang.pending and not places and not gang.succeeded
    assert not over, f"I1: {gang.id} keeps its permit, and none of its members has a place"
    if phase is Phase.ENDED:
        assert not (places or gang.pending), f"phases: {gang.id} is called ended, and has members"
    if phase is Phase.SATISFIED:
        held, minimum = places + len(gang.succeeded), gang.facts.minimum if gang.facts is not None else 1
        assert held >= minimum, f"I6: {gang.id} is called satisfied with {held} of {minimum}"


def check_sent(gang: Gang) -> None:
    """I6: permitted seats are sent to binding."""
    unsent = [held.seat.uid for held in gang.seats.values() if held.state is ActionState.DECIDED]
    waits = gang.permitted and unsent and gang.group.persist_id is None
    assert not waits, f"I6: {gang.id} is permitted, and {unsent} are not sent to binding"


def check_bound(scenario: Scenario, gang: Gang, undone_binds: Container[str]) -> None:
    """I4: acknowledged binds agree with the API server.

    Not checked for pods that were not bound in the backup that was restored last: somebody else may bind them before
    the coordinator observes that. At rest no bind differs (`check_binds_exist`).
    """
    for uid, seat in gang.acknowledged.items():
        pod = scenario.cluster.pods.get(uid)
        agrees = pod is None or pod.node == seat.node or uid in undone_binds
        assert agrees, f"I4: {uid} is on {pod.node if pod else ''}, but its seat is on {seat.node}"


def check_progress(gang: Gang, progress: Progress) -> None:
    """Checks the progress reported to the dialect."""
    there = {each.uid for each in progress.members if each.node}
    assert there >= {*gang.seats, *gang.acknowledged}, (
        f"progress: members of {gang.id} have nodes, which was not reported"
    )
    ranks = [each.rank for each in progress.members if each.rank is not None]
    assert len(ranks) == len(set(ranks)), f"progress: {gang.id} has duplicate ranks"
    assert bool(progress.preemptor) is (progress.stage is Stage.PREEMPTED), f"progress: preemptor of {gang.id}"


def check_stage(gang: Gang, stage: Stage) -> None:
    """Checks that a gang is preempted until it can start again, and started once it is permitted."""
    preempted = gang.eviction.whole and bool(gang.eviction.preemptor) and not gang.permitted
    assert not preempted or stage is Stage.PREEMPTED, f"stages: {gang.id} is preempted, but {stage} is reported"
    if stage is Stage.PREEMPTED:
        assert gang.eviction.whole or not gang.all_present, (
            f"stages: {gang.id} could start, but is reported as preempted"
        )
    began = gang.timing.ready_unix or gang.permitted or not gang.all_present or gang.eviction.whole
    assert began, f"stages: {gang.id} is complete, and the time since then is unknown"
    started = stage in (Stage.PERMITTED, Stage.BOUND, Stage.ENDED)
    assert started is gang.permitted, f"stages: {gang.id} is {stage}, permitted: {gang.permitted}"
