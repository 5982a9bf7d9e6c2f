"""One trace per gang: a root span from creation to start, with a child span per phase.

The traceparent of the root span is kept in the gang's record, and the span id of a phase whose start the record holds
is derived from both. A leader that takes over during such a phase continues the same span.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from time import time_ns
from typing import Final

from muster.coordinator.core.effects import Phase, PhaseChanged
from muster.coordinator.core.events import Record, RecordState
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.report.reasons import reason
from muster.telemetry import tracing

_ENDED: Final = (Phase.SATISFIED, Phase.ENDED, None)
_SETBACKS: Final = (Phase.REPAIRING, Phase.TIMED_OUT)
"""Phases that are setbacks although they come later in the enum."""
_MAX_LINKS: Final = 32
_MAX_REASON_CHARACTERS: Final = 256


@dataclass(slots=True)
class _Trace:
    root: str
    """Traceparent of the root span."""
    started_nanos: int
    phase: str = ""
    """Traceparent of the span of the current phase."""
    phase_started_nanos: int = 0
    ended: bool = False
    derived: dict[Phase, str] = field(default_factory=dict)
    """The newest derived traceparent by phase: it is of one span only."""
    links: dict[str, None] = field(default_factory=dict)
    """Traceparents of spans in other gangs' traces that the span of the phase links to."""


class GangTraces:
    """Records the spans of gangs as they pass their phases. Does nothing while tracing is off.

    A trace ends with its gang; that of a record whose gang is gone, with the first snapshot of the term.
    """

    def __init__(self) -> None:
        self._traces: dict[str, _Trace] = {}

    def recover(self, records: Iterable[tuple[Record, str]]) -> None:
        """Continues the traces of gangs from their records and the traceparents of their root spans."""
        if tracing.enabled():
            for record, traceparent in records:
                if tracing.from_traceparent(traceparent) is not None:
                    self._traces[record.gang] = _Trace(
                        traceparent,
                        _recorded_nanos(record) or time_ns(),
                        ended=record.state is RecordState.SATISFIED,  # its root span was sent then
                    )

    def keep(self, gangs: Container[str]) -> None:
        """Forgets the traces of gangs that are gone."""
        for gang in [gang for gang in self._traces if gang not in gangs]:
            del self._traces[gang]

    def root_of(self, gang: str) -> str:
        """Returns the traceparent of the gang's root span; "" if it has none."""
        trace = self._traces.get(gang)
        return trace.root if trace is not None else ""

    def phase_of(self, gang: str) -> str:
        """Returns the traceparent of the span of its phase, the parent of all spans of current work for the gang."""
        trace = self._traces.get(gang)
        return (trace.phase or trace.root) if trace is not None else ""

    def trace_id(self, gang: str) -> str:
        """Returns the trace id in hexadecimal, for logs; "" if there is none."""
        root = self.root_of(gang)
        return root.split("-")[1] if root else ""

    def sampled_trace_id(self, gang: str) -> str:
        """Returns the trace id for users; "" if there is none or the trace is not sampled, so a lookup would fail."""
        return self.trace_id(gang) if tracing.is_sampled(self.root_of(gang)) else ""

    def link(self, gang: str, traceparent: str) -> None:
        """Links the span of the gang's phase to a span of another trace."""
        trace = self._traces.get(gang)
        if trace is not None and traceparent and len(trace.links) < _MAX_LINKS:
            trace.links[traceparent] = None

    def follow(self, change: PhaseChanged, gang: Gang | None) -> None:
        """Ends the span of the previous phase and begins one for the next."""
        if not tracing.enabled():
            return
        now = time_ns()
        record = gang.permit.record if gang is not None else None
        if change.before is None and record is None:
            self._traces.pop(change.gang, None)  # an earlier gang with the same name
        trace = self._traces.get(change.gang)
        if trace is None:
            if change.after in _ENDED:
                return  # it was running when this term began
            trace = self._traces[change.gang] = _Trace(tracing.new_traceparent(), now)
        if gang is not None and (preemptor := gang.eviction.preemptor or gang.eviction.preempted_by):
            self.link(change.gang, self.root_of(preemptor))
            self.link(preemptor, trace.root)
        if change.before is not None and trace.phase:
            self._record_phase(change, trace, gang, now)
        if change.after in _ENDED:
            trace.phase = ""
            if not trace.ended:
                self._record_root(change, trace, gang, now)
        else:
            self._begin_phase(change, trace, record, now)
        if change.after is None:
            del self._traces[change.gang]

    @staticmethod
    def _begin_phase(change: PhaseChanged, trace: _Trace, record: Record | None, now: int) -> None:
        trace.phase, trace.phase_started_nanos = tracing.new_traceparent(trace.root), now
        if change.after is None or record is None or not (since := _since_nanos(record, change.after)):
            return
        derived = _derived(trace.root, f"{change.after.name}/{since}")
        if trace.derived.get(change.after) != derived:
            trace.derived[change.after] = trace.phase = derived
            if change.before is None:  # the phase began in an earlier term
                trace.phase_started_nanos = since

    def _record_phase(self, change: PhaseChanged, trace: _Trace, gang: Gang | None, now: int) -> None:
        links, trace.links = tuple(trace.links), {}
        if change.before is None or not tracing.is_sampled(trace.root):
            return
        after = change.after.name.lower() if change.after is not None else "gone"
        attributes: dict[str, tracing.Attribute] = {"muster.gang": change.gang, "muster.gang.next_phase": after}
        if gang is not None:
            attributes["muster.gang.schedule_cycle"] = gang.attempts.cycle.number
            if _is_setback(change.before, change.after) and (message := reason(gang)):
                attributes["muster.gang.reason"] = message[:_MAX_REASON_CHARACTERS]
        tracing.record_span(
            f"gang.{change.before.name.lower()}",
            trace.phase_started_nanos,
            now,
            parent=trace.root,
            traceparent=trace.phase,
            attributes=attributes,
            links=links,
        )

    def _record_root(self, change: PhaseChanged, trace: _Trace, gang: Gang | None, now: int) -> None:
        trace.ended = True
        attributes: dict[str, tracing.Attribute] = {"muster.gang": change.gang}
        if gang is not None and gang.facts is not None:
            attributes |= {
                "muster.dialect": gang.facts.dialect,
                "k8s.namespace.name": gang.facts.namespace,
                "muster.gang.minimum": gang.facts.minimum,
                "muster.gang.pods": len(gang.pods),
                "muster.gang.schedule_cycle": gang.attempts.cycle.number,
            }
        started = change.after is not None
        tracing.record_span(
            "gang",
            trace.started_nanos,
            now,
            traceparent=trace.root,
            attributes=attributes,
            links=self._partner_roots(gang),
            error="" if started else "the gang was deleted before it started",
            error_type="" if started else "deleted",
        )

    def _partner_roots(self, gang: Gang | None) -> list[str]:
        """Traceparents of the root spans of the other gangs of its gang group."""
        if gang is None or gang.facts is None:
            return []
        roots = (self.root_of(other) for other in gang.facts.group if other != gang.id)
        return [root for root in roots if root][:_MAX_LINKS]


def _is_setback(before: Phase, after: Phase | None) -> bool:
    return after is None or after < before or after in _SETBACKS


def _recorded_nanos(record: Record) -> int:
    """Time of the permit or, without one, of the first reservation; Unix nanoseconds, 0 if neither is recorded."""
    return (record.permitted_unix_millis or record.waiting_since_unix_millis) * 1_000_000


def _since_nanos(record: Record, phase: Phase) -> int:
    """Start of a phase according to the record; Unix nanoseconds, 0 if it does not hold it."""
    if phase is Phase.BINDING:
        return record.permitted_unix_millis * 1_000_000
    if phase is Phase.WAITING:
        return record.waiting_since_unix_millis * 1_000_000
    return 0


def _derived(root: str, key: str) -> str:
    """Derives a traceparent in the root's trace that is the same in every process."""
    digest = blake2b(f"{root}/{key}".encode(), digest_size=8).hexdigest()
    return f"{root[:36]}{digest}{root[52:]}"
