"""Evictions: sent when the decision is durable, retried when they fail, until the pods are observed to leave; how many
preemption may begin per hour; and gangs under repair, which are evicted if they cannot be completed (I6).

A gang is under repair while permitted members have no seat, or while fewer members than its minimum run and others
wait. Gangs under repair may each hold what another one needs. By default the lower is therefore evicted whole after the
repair timeout, by the priority that admission gave to its pods, and so is a gang that has never run whole; only policy
Wait lets a gang stay as it is. A gang that is below its minimum because that was raised is not under repair.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.effects import Effect, EventType, Evict, KubeEvent, Report
from muster.coordinator.core.events import EvictCallFailed, EvictOutcome, EvictResults, Now, Rules
from muster.coordinator.core.gang.gang import SYSTEM_CRITICAL_PRIORITY, Gang, pod_reference
from muster.coordinator.core.gang.state import ActionState, LeavingPod
from muster.coordinator.core.preemption.nomination import Plan, Victims
from muster.coordinator.core.report.reports import PODS_WITH_EVENTS
from muster.coordinator.core.slices import GANGS, Slices
from muster.gangs.facts import RepairPolicy
from muster.retry.backoff import backoff_seconds

INITIAL_RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 30.0
"""Longest pause: a disruption budget may forbid an eviction for long."""
MAX_FAILURES = 3
"""Failed evictions of a pod after which a plan that needs it is dropped. Each takes the binding service up to a minute.
"""
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


def evicted(gang: Gang, uids: list[str]) -> Report:
    """Events on evicted pods and on their gang's definition."""
    if gang.eviction.revoked:
        owner = gang.eviction.preemptor.split("/", 1)[-1]
        reason, cause = "Preempted", f"evicted, since it used capacity that is reserved for gang {owner}, which starts"
    elif gang.eviction.preemptor:
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
    """Gangs under repair, and since when. An entry ends when the gang is complete or gone."""

    def __init__(self, begin: Callable[[Plan, Now], list[Effect]], budgets: Mapping[str, int], rules: Rules) -> None:
        """`begin` carries out a plan to evict gangs; `budgets`: evictions that disruption budgets allow now."""
        self._begin, self._budgets, self._rules = begin, budgets, rules
        self._since: dict[Gang, float] = {}
        self._reported: dict[Gang, int] = {}

    def update(self, gang: Gang, now: Now) -> None:
        """Start or end the repair of a touched gang."""
        repairs = gang.lost or (gang.seats and any(held.repairs for held in gang.seats.values()))
        if repairs or (gang.pending and gang.broken and not gang.eviction.whole):
            self._since.setdefault(gang, now.monotonic_seconds)
        else:
            self.forget(gang)

    def forget(self, gang: Gang) -> None:
        """The gang is complete, or gone."""
        self._since.pop(gang, None)
        self._reported.pop(gang, None)

    def next_time(self) -> float | None:
        """When the next repair times out."""
        return min((self._deadline(gang) for gang in self._since if not _under_way(gang)), default=None)

    @property
    def under_way(self) -> bool:
        """Gangs are under repair."""
        return bool(self._since)

    def due(self, now: Now) -> Slices[list[Effect]]:
        """Handle repairs that timed out, the last in the queue first. In slices."""
        effects: list[Effect] = []
        late = [gang for gang in self._since if self._deadline(gang) <= now.monotonic_seconds and not _under_way(gang)]
        if not late:
            return effects
        first = _first_broken(self._since)
        last_first = sorted(late, key=lambda gang: gang.group.admitted_key, reverse=True)
        for number, gang in enumerate(last_first, start=1):
            self._since[gang] = now.monotonic_seconds  # it times out again: the gang may fall below its minimum later
            effects += self._give_up(gang, now, keeps=self._keeps(gang, first))
            if number % GANGS == 0:
                yield
        return effects

    def _keeps(self, gang: Gang, first: Gang | None) -> bool:
        """The gang's pods keep running.

        By default those of a gang that has run whole do, unless another gang under repair is ahead of it; a gang that
        has never run whole keeps its pods as long as it is ahead of others that are evicted instead: those that neither
        their policy, nor a pod that is critical to the system, nor a disruption budget protects.
        """
        if not (gang.broken and gang.bound and self._may_be_evicted(gang)) or gang.facts is None:
            return True
        if gang.facts.repair_policy is RepairPolicy.EVICT or gang is not first:
            return False
        return gang.started or any(
            other is not gang and other.broken and self._may_be_evicted(other) for other in self._since
        )

    def _may_be_evicted(self, gang: Gang) -> bool:
        if gang.facts is None or gang.facts.repair_policy is RepairPolicy.WAIT:
            return False
        if _is_critical(gang) and gang.facts.repair_policy is not RepairPolicy.EVICT:
            return False
        covered = Counter(budget for uid in gang.bound for budget in gang.pods[uid].budgets)
        return all(count <= self._budgets.get(budget, 0) for budget, count in covered.items())

    def _give_up(self, gang: Gang, now: Now, *, keeps: bool) -> list[Effect]:
        about = gang.reference
        if about is None:
            return []
        what = (
            "it keeps running, and these pods are still tried"
            if keeps
            else "its pods are evicted, and it starts again as a whole"
        )
        missing = len(gang.lost) or len(gang.pending)
        lost = f"{missing} of its pods found no node for {self._rules.repair_timeout_seconds:g} s"
        note = f"gang {gang.label} could not be repaired: {lost}; {what}"
        effects: list[Effect] = []
        if not keeps or self._reported.get(gang) != missing:
            self._reported[gang] = missing
            effects.append(Report(gang.id, events=(KubeEvent(about, EventType.WARNING, "RepairTimedOut", note),)))
        if not keeps:
            victims = Victims(bound={gang: sorted(gang.bound)}, whole=frozenset({gang}))
            effects += self._begin(Plan(victims), now)
        return effects

    def _deadline(self, gang: Gang) -> float:
        return self._since[gang] + self._rules.repair_timeout_seconds


def _first_broken(gangs: Iterable[Gang]) -> Gang | None:
    """The gang that keeps its pods if several block each other: one that is critical to the system, then the first by
    admitted priority, then in the queue.
    """
    broken = (gang for gang in gangs if gang.broken)
    return min(broken, key=lambda gang: (not _is_critical(gang), gang.group.admitted_key), default=None)


def _is_critical(gang: Gang) -> bool:
    """A pod of the gang is critical to the system."""
    return max(gang.live_priorities, default=0) >= SYSTEM_CRITICAL_PRIORITY


def _under_way(gang: Gang) -> bool:
    """Binds, a solve or a write are under way, whose outcome may complete the gang."""
    return bool(gang.seats or gang.acknowledged) or gang.group.busy
