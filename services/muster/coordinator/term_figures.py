"""Figures of one term: how many gangs are in which phase and for how long, and how far the view lags behind.

Costs are per gang and per batch, never per pod: of every batch of binds one pod is followed.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from time import monotonic

from msgspec import Struct

from muster.coordinator import metrics
from muster.coordinator.core.effects import Effect, Evict, Phase, PhaseChanged
from muster.coordinator.core.events import BindOutcome, BindResults, Event
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.machine import Machine

_MOST_FOLLOWED = 64
"""Pods whose sight is waited for; while the view is lost there is nothing more to learn."""
_MOST_ATTEMPTS = 5
_GATED = (Phase.GATHERING, Phase.TIMED_OUT)


class _Wait(Struct):
    """A gang that has not started, or not all that was decided of it is bound."""

    since: float
    tried_since: float | None
    first: bool
    """It starts for the first time, and was seen from the beginning."""


class TermFigures:
    """What a term tells, from `begin` to `end`."""

    def __init__(self, machine: Machine, trace_of: Callable[[str], str]) -> None:
        """`trace_of`: traceparent of a gang's root span."""
        self._machine, self._trace_of = machine, trace_of
        self._phases: Counter[Phase] = Counter()
        self._waits: dict[str, _Wait] = {}
        self._followed: dict[str, float] = {}
        self._evicting: dict[str, frozenset[str]] = {}

    def begin(self, records_waiting: Callable[[], int]) -> None:
        """Gauges are read from this term."""
        metrics.TERMS.add()
        metrics.GANGS.read_from(self._gangs)
        metrics.PENDING.read_from(self._pending)
        metrics.RECORDS_WAITING.read_from(lambda: {(): records_waiting()})

    @staticmethod
    def end() -> None:
        """A replica that does not lead knows nothing of gangs."""
        for gauge in (metrics.GANGS, metrics.PENDING, metrics.RECORDS_WAITING):
            gauge.read_from(None)

    # -- counted

    def stepped(self, arrived: Iterable[Event], effects: Iterable[Effect]) -> None:
        """The machine took these in, and wants those done."""
        now = monotonic()
        for event in arrived:
            if isinstance(event, BindResults) and len(self._followed) < _MOST_FOLLOWED:
                bound = (result.uid for result in event.results if result.outcome is BindOutcome.BOUND)
                if (uid := next(bound, None)) is not None:
                    self._followed[uid] = now
        if self._followed:
            self._look_for_followed(now)
        if evictions := [effect for effect in effects if isinstance(effect, Evict)]:
            self._preempted(evictions)

    def phase_changed(self, change: PhaseChanged, gang: Gang | None) -> None:
        """A gang came, went, or went on."""
        now, before, after = monotonic(), change.before, change.after
        if before is not None:
            self._phases[before] -= 1
        if after is None:
            self._evicting.pop(change.gang, None)
        else:
            self._phases[after] += 1
        wait = self._waits.pop(change.gang, None)
        if wait is not None and before is not None:
            trace = self._trace_of(change.gang)
            metrics.PHASE_SECONDS.labels(before.name.lower()).observe(now - wait.since, trace)
            if after is Phase.SATISFIED and wait.first and gang is not None:
                self._started(gang, now - (wait.since if wait.tried_since is None else wait.tried_since), trace)
        if after is None or after is Phase.SATISFIED:
            return
        if wait is None:
            wait = _Wait(now, None, first=before is None and (gang is None or gang.record is None))
        wait.since = now
        if after in _GATED:
            wait.tried_since = None
        elif wait.tried_since is None:
            wait.tried_since = now
        self._waits[change.gang] = wait

    @staticmethod
    def _started(gang: Gang, seconds: float, trace: str) -> None:
        attempts = str(gang.attempts) if gang.attempts < _MOST_ATTEMPTS else f"{_MOST_ATTEMPTS}+"
        metrics.SLI_SECONDS.labels(attempts).observe(seconds, trace)
        if gang.start_seconds is not None:
            metrics.START_SECONDS.observe(gang.start_seconds, trace)

    def _look_for_followed(self, now: float) -> None:
        cache = self._machine.cache
        for uid, since in list(self._followed.items()):
            gang = cache.gang_of.get(uid)
            if gang is None:
                del self._followed[uid]
            elif uid in gang.bound:
                del self._followed[uid]
                metrics.WATCH_LAG.observe(now - since, self._trace_of(gang.id))

    def _preempted(self, evictions: list[Evict]) -> None:
        """Each pod counts once, however often its eviction has to be repeated."""
        victims: defaultdict[str, int] = defaultdict(int)
        for effect in evictions:
            gang = self._machine.cache.gangs.get(effect.gang)
            if gang is None or not gang.evicted_for:
                continue
            told = self._evicting.get(gang.id, frozenset())
            uids = frozenset(pod.uid for pod in effect.pods)
            victims[gang.evicted_for] += len(uids - told)
            self._evicting[gang.id] = uids | {uid for uid in told if uid in gang.leaving}
        for pods in victims.values():
            if pods:
                metrics.PREEMPTION_VICTIMS.observe(pods)

    # -- read when somebody asks

    def _gangs(self) -> Mapping[tuple[str, ...], float]:
        return {(phase.name.lower(),): self._phases[phase] for phase in Phase}

    def _pending(self) -> Mapping[tuple[str, ...], float]:
        pods = {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0}
        for standing, group in self._machine.queue.standings():
            pods[standing] += sum(len(gang.waiting) for gang in group.gangs)
        for id_ in self._waits:
            gang = self._machine.cache.gangs.get(id_)
            if gang is None:
                continue
            if gang.phase in _GATED:
                pods["gated"] += len(gang.waiting) + len(gang.marked) + len(gang.timing_out)
            elif gang.group.solving is not None:
                pods["active"] += len(gang.waiting)
        return {(standing,): count for standing, count in pods.items()}
