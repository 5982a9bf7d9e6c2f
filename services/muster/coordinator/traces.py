"""One trace per gang: spans made of its phases, hung below a root whose name is known from the first moment.

The root's name is in the gang's record, and the name of a phase that a record tells of follows from both: who takes
over in the middle of it goes on with the same span, below which the work of both is found.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from time import time_ns
from typing import Final

from muster.coordinator.core.effects import Phase, PhaseChanged
from muster.coordinator.core.events import Record, RecordState
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.report.reasons import reason
from muster.telemetry import tracing

_ENDED: Final = (Phase.SATISFIED, None)
_SETBACKS: Final = (Phase.REPAIRING, Phase.TIMED_OUT)
"""Phases that come after others and are no progress."""
_MOST_LINKS: Final = 32
_REASON_CHARACTERS: Final = 256


@dataclass(slots=True)
class _Trace:
    root: str
    started_nanos: int
    phase: str = ""
    """Name of the span of the phase that it is in."""
    phase_started_nanos: int = 0
    ended: bool = False
    seen: set[str] = field(default_factory=set)
    """Names of spans that follow from a record and were used."""
    links: dict[str, None] = field(default_factory=dict)
    """Names of spans of other gangs' traces that have to do with the phase."""


class GangTraces:
    """Follows gangs through their phases. With tracing off it knows nothing and costs nothing."""

    def __init__(self, recovered: Iterable[tuple[Record, str]] = ()) -> None:
        """`recovered`: records with the traceparents of their gangs' roots."""
        self._traces: dict[str, _Trace] = {}
        if tracing.enabled():
            for record, traceparent in recovered:
                if tracing.from_traceparent(traceparent) is not None:
                    self._traces[record.gang] = _Trace(
                        traceparent,
                        _recorded_nanos(record) or time_ns(),
                        ended=record.state is RecordState.SATISFIED,  # told when it was
                    )

    def root_of(self, gang: str) -> str:
        """Traceparent of the gang's root span; "" if it has none."""
        trace = self._traces.get(gang)
        return trace.root if trace is not None else ""

    def phase_of(self, gang: str) -> str:
        """Traceparent of the span of its phase: what is done for the gang now hangs below it."""
        trace = self._traces.get(gang)
        return (trace.phase or trace.root) if trace is not None else ""

    def trace_id(self, gang: str) -> str:
        """Trace id in hexadecimal, for logs; "" if there is none."""
        root = self.root_of(gang)
        return root.split("-")[1] if root else ""

    def kept_trace_id(self, gang: str) -> str:
        """Trace id for users, who would look it up; "" if there is none, or it is not among those that are sent."""
        return self.trace_id(gang) if tracing.is_kept(self.root_of(gang)) else ""

    def link(self, gang: str, traceparent: str) -> None:
        """A span of another trace has to do with the gang's phase."""
        trace = self._traces.get(gang)
        if trace is not None and traceparent and len(trace.links) < _MOST_LINKS:
            trace.links[traceparent] = None

    def follow(self, change: PhaseChanged, gang: Gang | None) -> None:
        """A phase ended and another began."""
        if not tracing.enabled():
            return
        now = time_ns()
        record = gang.record if gang is not None else None
        if change.before is None and record is None:
            self._traces.pop(change.gang, None)  # of a former gang of that name
        trace = self._traces.get(change.gang)
        if trace is None:
            if change.after in _ENDED:
                return  # there was nothing to follow: it ran when this term began
            trace = self._traces[change.gang] = _Trace(tracing.new_traceparent(), now)
        if gang is not None and (preemptor := gang.evicted_for or gang.preempted_by):
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
        name = _derived(trace.root, f"{change.after.name}/{since}")
        if name not in trace.seen:
            trace.seen.add(name)
            trace.phase = name
            if change.before is None:  # it began in a former term
                trace.phase_started_nanos = since

    def _record_phase(self, change: PhaseChanged, trace: _Trace, gang: Gang | None, now: int) -> None:
        links, trace.links = tuple(trace.links), {}
        if change.before is None or not tracing.is_kept(trace.root):
            return
        after = change.after.name.lower() if change.after is not None else "gone"
        attributes: dict[str, tracing.Attribute] = {"muster.gang": change.gang, "muster.gang.next_phase": after}
        if gang is not None:
            attributes["muster.gang.schedule_cycle"] = gang.cycle.number
            if _set_back(change.before, change.after) and (why := reason(gang)):
                attributes["muster.gang.reason"] = why[:_REASON_CHARACTERS]
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
                "muster.gang.schedule_cycle": gang.cycle.number,
            }
        started = change.after is Phase.SATISFIED
        tracing.record_span(
            "gang",
            trace.started_nanos,
            now,
            traceparent=trace.root,
            attributes=attributes,
            links=self._partners(gang),
            error="" if started else "the gang was deleted before it started",
            error_type="" if started else "deleted",
        )

    def _partners(self, gang: Gang | None) -> list[str]:
        """Roots of the gangs that it starts together with."""
        if gang is None or gang.facts is None:
            return []
        roots = (self.root_of(other) for other in gang.facts.group if other != gang.id)
        return [root for root in roots if root][:_MOST_LINKS]


def _set_back(before: Phase, after: Phase | None) -> bool:
    return after is None or after < before or after in _SETBACKS


def _recorded_nanos(record: Record) -> int:
    """When it was permitted; one that was not has no earlier time than that of its first reservation."""
    return (record.permitted_unix_millis or record.waiting_since_unix_millis) * 1_000_000


def _since_nanos(record: Record, phase: Phase) -> int:
    """When a phase began, if the record tells."""
    if phase is Phase.BINDING:
        return record.permitted_unix_millis * 1_000_000
    if phase is Phase.WAITING:
        return record.waiting_since_unix_millis * 1_000_000
    return 0


def _derived(root: str, what: str) -> str:
    """The name of a span in the root's trace that everybody gives it."""
    digest = blake2b(f"{root}/{what}".encode(), digest_size=8).hexdigest()
    return f"{root[:36]}{digest}{root[52:]}"
