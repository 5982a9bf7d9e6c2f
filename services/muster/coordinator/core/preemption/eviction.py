"""Evictions: sent when the decision is durable, retried when they fail, until the pods are observed to leave.

Besides victims of preemption, these are pods of started gangs that cannot be completed within the repair timeout: they
follow their repair policy (I6).
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.effects import Effect, EventType, Evict, KubeEvent, Report
from muster.coordinator.core.events import EvictCallFailed, EvictOutcome, EvictResults, Now, Rules
from muster.coordinator.core.gang.gang import Gang, pod_reference
from muster.coordinator.core.gang.state import ActionState, LeavingPod
from muster.coordinator.core.preemption.nomination import Plan, Victims
from muster.coordinator.core.report.reports import PODS_WITH_EVENTS
from muster.gangs.facts import RepairPolicy
from muster.retry.backoff import backoff_seconds

if TYPE_CHECKING:
    from muster.coordinator.core.preemption.plan import Plans

INITIAL_RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 30.0
"""Longest pause: a disruption budget may forbid an eviction for long."""
MAX_FAILURES = 3
"""Failed evictions of a pod after which a plan that needs it is dropped. Each takes the binding service up to a minute.
"""
CALL_RETRY_SECONDS = 0.5


class Evictions:
    """Evictions to be retried."""

    def __init__(self) -> None:
        self._retries: dict[str, tuple[Gang, LeavingPod]] = {}

    @staticmethod
    def stuck(gang: Gang) -> bool:
        """Some of its pods cannot be evicted."""
        return any(leaving.failures >= MAX_FAILURES for leaving in gang.eviction.pods.values())

    @staticmethod
    def stoppable(gang: Gang) -> list[str]:
        """Pods whose eviction was not sent, or failed."""
        return [uid for uid, leaving in gang.eviction.pods.items() if leaving.state is not ActionState.SENT]

    def send(self, gang: Gang, uids: Collection[str]) -> list[Effect]:
        """Send evictions, but for pods that are gone meanwhile or were sent before."""
        leaving = [gang.eviction.pods[uid] for uid in sorted(uids) if uid in gang.eviction.pods]
        leaving = [each for each in leaving if each.state is not ActionState.SENT]
        for each in leaving:
            each.send()
        if leaving:
            gang.eviction.sent()
        return [Evict(gang.id, tuple(each.pod for each in leaving))] if leaving else []

    def results(self, cache: Cache, event: EvictResults, now: float) -> list[Effect]:
        """The binding service reports evictions. A pod has left when that is observed."""
        effects: list[Effect] = []
        for result in event.results:
            gang, leaving = self._leaving(cache, result.uid)
            if gang is None or leaving is None or result.outcome is not EvictOutcome.FAILED:
                continue
            if leaving.state is not ActionState.SENT:
                continue  # reported before
            leaving.fail()
            pause = backoff_seconds(INITIAL_RETRY_SECONDS, MAX_RETRY_SECONDS, leaving.failures)
            self._retry(gang, leaving, now + pause)
            note = f"the pod could not be evicted and is retried: {result.message}"
            event_ = KubeEvent(pod_reference(gang.pods[result.uid]), EventType.WARNING, "FailedEviction", note)
            effects.append(Report(gang.id, events=(event_,)))
        return effects

    def call_failed(self, cache: Cache, event: EvictCallFailed, now: float) -> None:
        """The call failed: evictions are idempotent, and retried."""
        for uid in event.uids:
            gang, leaving = self._leaving(cache, uid)
            if gang is not None and leaving is not None and leaving.state is ActionState.SENT:
                self._retry(gang, leaving, now + CALL_RETRY_SECONDS)

    def next_time(self) -> float | None:
        """When a pod is to be evicted again."""
        return min((leaving.retry_at for _, leaving in self._retries.values()), default=None)

    def due(self, now: float) -> list[Effect]:
        """Pods to be evicted again now."""
        by_gang: dict[Gang, list[str]] = {}
        for uid, (gang, leaving) in list(self._retries.items()):
            if leaving.retry_at <= now:
                del self._retries[uid]
                if gang.eviction.pods.get(uid) is leaving:
                    by_gang.setdefault(gang, []).append(uid)
        return [effect for gang, uids in by_gang.items() for effect in self.send(gang, uids)]

    def _retry(self, gang: Gang, leaving: LeavingPod, at: float) -> None:
        leaving.retry(at)
        self._retries[leaving.pod.uid] = (gang, leaving)

    @staticmethod
    def _leaving(cache: Cache, uid: str) -> tuple[Gang | None, LeavingPod | None]:
        gang = cache.gang_of.get(uid)
        return gang, gang.eviction.pods.get(uid) if gang is not None else None


def evicted(gang: Gang, uids: list[str]) -> Report:
    """Events on evicted pods and on their gang's definition."""
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


class Repairs:
    """Gangs with permitted members that lost their seats, and since when."""

    def __init__(self, plans: "Plans", rules: Rules) -> None:
        self._plans, self._rules = plans, rules
        self._since: dict[Gang, float] = {}
        self._reported: dict[Gang, int] = {}

    def update(self, gang: Gang, now: Now) -> None:
        """Start or end the repair of a touched gang."""
        if not gang.lost and not any(held.repairs for held in gang.seats.values()):
            self.forget(gang)
        else:
            self._since.setdefault(gang, now.monotonic_seconds)

    def forget(self, gang: Gang) -> None:
        """The gang is complete, or gone."""
        self._since.pop(gang, None)
        self._reported.pop(gang, None)

    def next_time(self) -> float | None:
        """When the next repair times out."""
        return min((self._deadline(gang) for gang in self._since if not _under_way(gang)), default=None)

    def due(self, now: Now) -> list[Effect]:
        """Handle repairs that timed out."""
        late = [gang for gang in self._since if self._deadline(gang) <= now.monotonic_seconds and not _under_way(gang)]
        effects: list[Effect] = []
        for gang in late:
            self._since[gang] = now.monotonic_seconds  # it times out again: the gang may fall below its minimum later
            effects += self._give_up(gang, now)
        return effects

    def _give_up(self, gang: Gang, now: Now) -> list[Effect]:
        facts, about = gang.facts, gang.reference
        if facts is None or about is None:
            return []
        evict = facts.repair_policy is RepairPolicy.EVICT and 0 < len(gang.bound) < gang.required
        what = (
            "its repair policy evicts its pods, and it starts again"
            if evict
            else "it keeps running, and these pods are still scheduled first"
        )
        seconds = f"{self._rules.repair_timeout_seconds:g} s"
        lost = f"{len(gang.lost)} of its pods found no other node for {seconds}"
        note = f"gang {gang.label} could not be repaired: {lost}; {what}"
        effects: list[Effect] = []
        if evict or self._reported.get(gang) != len(gang.lost):
            self._reported[gang] = len(gang.lost)
            effects.append(Report(gang.id, events=(KubeEvent(about, EventType.WARNING, "RepairTimedOut", note),)))
        if evict:
            victims = Victims(bound={gang: sorted(gang.bound)}, whole=frozenset({gang}))
            effects += self._plans.begin(Plan(victims), now)
        return effects

    def _deadline(self, gang: Gang) -> float:
        return self._since[gang] + self._rules.repair_timeout_seconds


def _under_way(gang: Gang) -> bool:
    """Binds, a solve or a write are under way, whose outcome may complete the gang."""
    return bool(gang.seats or gang.acknowledged) or gang.group.busy
