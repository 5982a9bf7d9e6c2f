"""Metrics of one term: gangs by phase, the duration of phases, victims of preemption, and the lag of the cache.

The cost is per gang and per batch, never per pod: the lag is measured for one pod of each batch of binds.
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

_MAX_TRACKED_BINDS = 16
"""Binds whose lag is being measured; more would add nothing while the stream of cluster-state is lost."""
_MAX_ATTEMPTS_LABEL = 5
_GATED = (Phase.GATHERING, Phase.TIMED_OUT)


class _Start(Struct):
    """Times of a gang that has not started, or whose permitted pods are not all bound."""

    phase_since: float
    """Monotonic seconds."""
    schedulable_since: float | None
    """Monotonic seconds; None while it is gated."""
    first: bool
    """The gang starts for the first time, and this term saw it from its creation."""


class TermMetrics:
    """Records the metrics of a term from `begin` to `end`.

    What is kept about a gang ends when it starts or is gone; binds to be observed, at most _MAX_TRACKED_BINDS, when the
    pod is observed bound or gone.
    """

    def __init__(self, machine: Machine, trace_of: Callable[[str], str]) -> None:
        """`trace_of`: traceparent of a gang's root span."""
        self._machine, self._trace_of = machine, trace_of
        self._phases: Counter[Phase] = Counter()
        self._starts: dict[str, _Start] = {}
        self._tracked_binds: dict[str, float] = {}
        self._evicting: dict[str, frozenset[str]] = {}

    def begin(self, pending_records: Callable[[], int]) -> None:
        """Counts the term and exposes its gauges."""
        metrics.TERMS.add()
        metrics.GANGS.read_from(self._gangs)
        metrics.PENDING.read_from(self._pending)
        metrics.RECORDS_PENDING.read_from(lambda: {(): pending_records()})

    @staticmethod
    def end() -> None:
        """Stops exposing the gauges: a standby knows no gangs."""
        for gauge in (metrics.GANGS, metrics.PENDING, metrics.RECORDS_PENDING):
            gauge.read_from(None)

    def stepped(self, arrived: Iterable[Event], effects: Iterable[Effect]) -> None:
        """Records one step of the machine."""
        now = monotonic()
        for event in arrived:
            if isinstance(event, BindResults) and len(self._tracked_binds) < _MAX_TRACKED_BINDS:
                bound = (result.uid for result in event.results if result.outcome is BindOutcome.BOUND)
                if (uid := next(bound, None)) is not None:
                    self._tracked_binds[uid] = now
        if self._tracked_binds:
            self._measure_watch_lag(now)
        if evictions := [effect for effect in effects if isinstance(effect, Evict)]:
            self._preempted(evictions)

    def phase_changed(self, change: PhaseChanged, gang: Gang | None) -> None:
        """Records that a gang was added, changed its phase or was removed."""
        now, before, after = monotonic(), change.before, change.after
        if before is not None:
            self._phases[before] -= 1
        if after is None:
            self._evicting.pop(change.gang, None)
        else:
            self._phases[after] += 1
        start = self._starts.pop(change.gang, None)
        if start is not None and before is not None:
            trace = self._trace_of(change.gang)
            metrics.PHASE_SECONDS.labels(before.name.lower()).observe(now - start.phase_since, trace)
            if after is Phase.SATISFIED and start.first and gang is not None:
                self._started(
                    gang,
                    now - (start.phase_since if start.schedulable_since is None else start.schedulable_since),
                    trace,
                )
        if after in (None, Phase.SATISFIED, Phase.ENDED):
            return
        if start is None:
            start = _Start(now, None, first=before is None and (gang is None or gang.permit.record is None))
        start.phase_since = now
        if after in _GATED:
            start.schedulable_since = None
        elif start.schedulable_since is None:
            start.schedulable_since = now
        self._starts[change.gang] = start

    @staticmethod
    def _started(gang: Gang, seconds: float, trace: str) -> None:
        attempts = (
            str(gang.attempts.in_term) if gang.attempts.in_term < _MAX_ATTEMPTS_LABEL else f"{_MAX_ATTEMPTS_LABEL}+"
        )
        metrics.SLI_SECONDS.labels(attempts).observe(seconds, trace)
        if gang.timing.start_seconds is not None:
            metrics.START_SECONDS.observe(gang.timing.start_seconds, trace)

    def _measure_watch_lag(self, now: float) -> None:
        cache = self._machine.cache
        for uid, since in list(self._tracked_binds.items()):
            gang = cache.gang_of.get(uid)
            if gang is None:
                del self._tracked_binds[uid]
            elif uid in gang.bound:
                del self._tracked_binds[uid]
                metrics.WATCH_LAG.observe(now - since, self._trace_of(gang.id))

    def _preempted(self, evictions: list[Evict]) -> None:
        """Counts each pod once, however often its eviction is repeated."""
        victims: defaultdict[str, int] = defaultdict(int)
        for effect in evictions:
            gang = self._machine.cache.gangs.get(effect.gang)
            if gang is None or not gang.eviction.preemptor:
                continue
            counted = self._evicting.get(gang.id, frozenset())
            uids = frozenset(pod.uid for pod in effect.pods)
            victims[gang.eviction.preemptor] += len(uids - counted)
            self._evicting[gang.id] = uids | {uid for uid in counted if uid in gang.eviction.pods}
        for pods in victims.values():
            if pods:
                metrics.PREEMPTION_VICTIMS.observe(pods)

    def _gangs(self) -> Mapping[tuple[str, ...], float]:
        return {(phase.name.lower(),): self._phases[phase] for phase in Phase}

    def _pending(self) -> Mapping[tuple[str, ...], float]:
        pods = {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0}
        for state, group in self._machine.queue.standings():
            for each in group.gangs:
                pods[state] += len(each.pending)
        for id_ in self._starts:
            gang = self._machine.cache.gangs.get(id_)
            if gang is None:
                continue
            if gang.phase in _GATED:
                pods["gated"] += len(gang.pending) + len(gang.hold.marked) + len(gang.hold.marking)
            elif gang.group.solve.solve_id is not None:
                pods["active"] += len(gang.pending)
        return {(state,): count for state, count in pods.items()}
