"""What users are told of plans that make room: who gives way, who is evicted for whom, where room is kept."""

import math

from muster.coordinator.core.effects import Effect, EventType, KubeEvent, Report
from muster.coordinator.core.events import Now
from muster.coordinator.core.gang.gang import Gang, pod_reference
from muster.coordinator.core.gang.group import Group
from muster.coordinator.core.permits.decisions import Plan
from muster.coordinator.core.preemption.nomination import Nomination
from muster.coordinator.core.report.reports import PODS_WITH_EVENTS


def gave_way(gang: Gang, kept: Nomination | None) -> list[Effect]:
    """The gang gives its reservations up for another."""
    if kept is None or gang.reference is None:
        return []
    others = " and ".join(f"gang {other.label}" for other in kept.group.gangs)
    note = (
        f"gives its {len(gang.seats)} places back: {others}, before it in the queue, needs room of gangs that wait; "
        "it is tried again when that has started or timed out"
    )
    return [Report(gang.id, events=(KubeEvent(gang.reference, EventType.WARNING, "GaveWay", note),))]


def preempts(plan: Plan) -> list[Effect]:
    """On the group for which others go: who."""
    if plan.kept is None:
        return []
    pods = sum(len(uids) for uids in plan.victims.bound.values())
    whom = ", ".join(sorted(gang.label for gang in plan.victims.bound)[:10])
    what = "1 pod of lower priority is" if pods == 1 else f"{pods} pods of lower priority are"
    return _on_all(plan.kept.group, "Preempting", f"{what} evicted for it, of {whom}")


def _on_all(group: Group, reason: str, note: str) -> list[Effect]:
    return [
        Report(gang.id, events=(KubeEvent(gang.reference, EventType.NORMAL, reason, note),))
        for gang in group.gangs
        if gang.reference is not None
    ]


def evicted(gang: Gang, uids: list[str]) -> Report:
    """On those that go, and on their gang: for whom."""
    whom = "because its gang cannot run whole"
    if gang.evicted_for:
        whom = f"for gang {gang.evicted_for.split('/', 1)[-1]}"
    reason = "Preempted" if gang.evicted_for else "GangEvicted"
    what = "the whole gang" if gang.leaves_whole else f"{len(uids)} of its pods, which it can spare,"
    pods = [gang.pods[uid] for uid in sorted(uids)[:PODS_WITH_EVENTS] if uid in gang.pods]
    events = [KubeEvent(pod_reference(pod), EventType.WARNING, reason, f"evicted {whom}") for pod in pods]
    if gang.facts is not None and gang.facts.definition is not None:
        note = f"{what} {'is' if gang.leaves_whole else 'are'} evicted {whom}"
        events.append(KubeEvent(gang.facts.definition, EventType.WARNING, reason, note))
    return Report(gang.id, events=tuple(events))


def room_kept(kept: Nomination, now: Now) -> list[Effect]:
    """On the group for which room drains: where, and until when."""
    nodes = len({node for node, _ in kept.room})
    where = "1 node" if nodes == 1 else f"{nodes} nodes"
    seconds = max(0.0, kept.starts_at - now.monotonic_seconds)
    when = "" if math.isinf(seconds) else f", expected in {seconds:.0f} s"
    note = f"room on {where} is kept for it until enough of what runs there has ended{when}"
    return _on_all(kept.group, "RoomKept", note)
