"""Events about preemption: released reservations, preemptors, victims, and capacity reserved for starving groups."""

import math

from muster.coordinator.core.effects import Effect, EventType, KubeEvent, Report
from muster.coordinator.core.events import Now
from muster.coordinator.core.gang.gang import Gang, pod_reference
from muster.coordinator.core.gang.group import Group
from muster.coordinator.core.permits.decisions import Plan
from muster.coordinator.core.preemption.nomination import Nomination
from muster.coordinator.core.report.reports import PODS_WITH_EVENTS


def reservation_released(gang: Gang, nomination: Nomination | None) -> list[Effect]:
    """On a gang whose reservations are released for another group."""
    if nomination is None or gang.reference is None:
        return []
    others = " and ".join(f"gang {other.label}" for other in nomination.group.gangs)
    note = (
        f"gang {gang.label} released its {len(gang.seats)} reservations: {others} is ahead of it in the queue and "
        "needs the capacity; it is tried again when that gang has started or timed out"
    )
    return [Report(gang.id, events=(KubeEvent(gang.reference, EventType.WARNING, "ReservationReleased", note),))]


def preempts(plan: Plan) -> list[Effect]:
    """On the gangs of the preemptor's group."""
    if plan.nomination is None:
        return []
    pods = sum(len(uids) for uids in plan.victims.bound.values())
    whom = ", ".join(sorted(gang.label for gang in plan.victims.bound)[:10])
    what = "1 pod" if pods == 1 else f"{pods} pods"
    return _on_all(plan.nomination.group, "Preempting", f"preempts {what} of lower priority, of {whom}")


def _on_all(group: Group, reason: str, predicate: str) -> list[Effect]:
    return [
        Report(gang.id, events=(KubeEvent(gang.reference, EventType.NORMAL, reason, f"gang {gang.label} {predicate}"),))
        for gang in group.gangs
        if gang.reference is not None
    ]


def evicted(gang: Gang, uids: list[str]) -> Report:
    """On evicted pods and on their gang's definition."""
    if gang.eviction.preemptor:
        reason, cause = "Preempted", f"preempted by gang {gang.eviction.preemptor.split('/', 1)[-1]}"
    else:
        reason, cause = "GangEvicted", "evicted by the repair policy of its gang, which could not be repaired"
    what = "all of its pods" if gang.eviction.whole else f"{len(uids)} of its pods, which it can spare,"
    pods = [gang.pods[uid] for uid in sorted(uids)[:PODS_WITH_EVENTS] if uid in gang.pods]
    events = [KubeEvent(pod_reference(pod), EventType.WARNING, reason, f"the pod is {cause}") for pod in pods]
    if gang.facts is not None and gang.facts.definition is not None:
        note = f"gang {gang.label} is {cause}: {what} are evicted"
        events.append(KubeEvent(gang.facts.definition, EventType.WARNING, reason, note))
    return Report(gang.id, events=tuple(events))


def capacity_reserved(nomination: Nomination, now: Now) -> list[Effect]:
    """On the gangs of a starving group: where capacity is reserved, and until when."""
    nodes = len({node for node, _ in nomination.capacity})
    where = "1 node" if nodes == 1 else f"{nodes} nodes"
    seconds = max(0.0, nomination.starts_at - now.monotonic_seconds)
    when = "" if math.isinf(seconds) else f", expected in {seconds:.0f} s"
    note = f"starves: capacity on {where} is reserved for it until enough running pods have ended{when}"
    return _on_all(nomination.group, "CapacityReserved", note)
