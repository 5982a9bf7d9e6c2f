"""Evictions: sent when the decision is durable, retried when they fail, until the pods are observed to leave; and how
many preemption may begin per hour.
"""

import math
from collections.abc import Collection

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.effects import Effect, EventType, Evict, KubeEvent, Report
from muster.coordinator.core.events import EvictCallFailed, EvictOutcome, EvictResults
from muster.coordinator.core.gang.gang import Gang, Group, pod_reference
from muster.coordinator.core.gang.state import ActionState, LeavingPod
from muster.coordinator.core.report.reports import PODS_WITH_EVENTS
from muster.coordinator.core.slices import GANGS, Slices
from muster.retry.backoff import backoff_seconds

INITIAL_RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 30.0
"""Longest pause: a disruption budget may forbid an eviction for long."""
MAX_FAILURES = 3
"""Failed evictions of a pod after which a plan that needs it is dropped. Each takes the binding service up to a minute.
"""
INITIAL_REFUSED_SECONDS = 10.0
"""A gang of which pods could not be evicted is no potential victim for this long, or for twice the time that the plan
took, so that others are reached although each refusal takes a minute; it doubles with every time in a row.
"""
MAX_REFUSED_SECONDS = 3600.0
"""Longest such time; a time as long without such a plan ends the row."""
CALL_RETRY_SECONDS = 0.5
SECONDS_PER_HOUR = 3600.0


class Evictions:
    """Evictions to be retried: at most one entry per leaving pod, which ends at the time of its retry."""

    def __init__(self) -> None:
        self._retries: dict[str, tuple[Gang, LeavingPod]] = {}

    @staticmethod
    def stuck(gang: Gang) -> bool:
        """Some of its pods cannot be evicted."""
        return any(leaving.failures >= MAX_FAILURES for leaving in gang.eviction.pods.values())

    @staticmethod
    def refused(gang: Gang, began: float, now: float) -> None:
        """A plan that began then ends since pods of the gang cannot be evicted: the next ones are to choose others."""
        continues = now <= gang.eviction.refused_until + MAX_REFUSED_SECONDS
        refusals = gang.eviction.refusals + 1 if continues else 1
        first = max(INITIAL_REFUSED_SECONDS, 2 * (now - began))
        pause = backoff_seconds(first, MAX_REFUSED_SECONDS, refusals)
        gang.eviction.refuse(refusals, now + pause)

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

    @property
    def retries(self) -> bool:
        """Pods are to be evicted again, now or later."""
        return bool(self._retries)

    def due(self, cache: Cache, now: float) -> Slices[list[Effect]]:
        """Pods to be evicted again now, unless they are gone or of another gang meanwhile. In slices."""
        by_gang: dict[Gang, list[str]] = {}
        for uid, (gang, leaving) in list(self._retries.items()):
            if leaving.retry_at <= now:
                del self._retries[uid]
                if cache.gang_of.get(uid) is gang and gang.eviction.pods.get(uid) is leaving:
                    by_gang.setdefault(gang, []).append(uid)
        effects: list[Effect] = []
        for number, (gang, uids) in enumerate(by_gang.items(), start=1):
            effects += self.send(gang, uids)
            if number % GANGS == 0:
                yield
        return effects

    def _retry(self, gang: Gang, leaving: LeavingPod, at: float) -> None:
        leaving.retry(at)
        self._retries[leaving.pod.uid] = (gang, leaving)

    @staticmethod
    def _leaving(cache: Cache, uid: str) -> tuple[Gang | None, LeavingPod | None]:
        gang = cache.gang_of.get(uid)
        return gang, gang.eviction.pods.get(uid) if gang is not None else None


class EvictionLimit:
    """Evictions for preemptors per hour, in the whole cluster: a token bucket, and so of constant size.

    A plan begins when there is a token, and takes one for each pod, also beyond zero: plans are whole, whatever their
    size. A term begins without tokens, since it does not know how many the last one used.
    """

    def __init__(self, per_hour: int) -> None:
        """`per_hour`: 0 for no limit."""
        self.per_hour = per_hour
        self._tokens = 0.0
        self._at: float | None = None

    @property
    def level(self) -> tuple[float, float | None]:
        """The tokens that there were at a time; None: at no time yet."""
        return self._tokens, self._at

    def resume(self, tokens: float, at: float | None) -> None:
        """Continue with the tokens that there were then."""
        self._tokens, self._at = tokens, at

    def ready_at(self, now: float) -> float:
        """When the next plan may begin: `now` if it may at once."""
        if not self.per_hour:
            return now
        self._refill(now)
        missing = 1.0 - self._tokens
        return now if missing <= 0 else now + math.ceil(missing * SECONDS_PER_HOUR / self.per_hour)

    def use(self, pods: int, now: float) -> None:
        """A plan that evicts this many pods begins."""
        if self.per_hour:
            self._refill(now)
            self._tokens -= pods

    def _refill(self, now: float) -> None:
        passed = now - self._at if self._at is not None else 0.0
        self._at = now
        self._tokens = min(float(self.per_hour), self._tokens + passed * self.per_hour / SECONDS_PER_HOUR)


def evicted(gang: Gang, uids: list[str], yields_to: Group | None) -> Report:
    """Events on evicted pods and on their gang's definition. `yields_to`: the group for which the gang is evicted by
    its repair policy, if there is one.
    """
    if gang.eviction.revoked:
        owner = gang.eviction.preemptor.split("/", 1)[-1]
        reason, cause = "Preempted", f"evicted, since it used capacity that is reserved for gang {owner}, which starts"
    elif gang.eviction.preemptor:
        reason, cause = "Preempted", f"preempted by gang {gang.eviction.preemptor.split('/', 1)[-1]}"
    else:
        reason, cause = "GangEvicted", "evicted by the repair policy of its gang, which could not be repaired"
        if yields_to is not None:
            others = " and ".join(f"gang {other.label}" for other in yields_to.gangs)
            cause += f"; {others}, ahead of it in the queue, could not be repaired either and needs its capacity"
    what = "all of its pods" if gang.eviction.whole else f"{len(uids)} of its pods, which it can spare,"
    pods = [gang.pods[uid] for uid in sorted(uids)[:PODS_WITH_EVENTS] if uid in gang.pods]
    events = [KubeEvent(pod_reference(pod), EventType.WARNING, reason, f"the pod is {cause}") for pod in pods]
    if gang.facts is not None and gang.facts.definition is not None:
        note = f"gang {gang.label} is {cause}: {what} are evicted"
        events.append(KubeEvent(gang.facts.definition, EventType.WARNING, reason, note))
    return Report(gang.id, events=tuple(events))
