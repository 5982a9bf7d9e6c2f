"""One trace per gang: spans made of its phases, hung below a root whose name is known from the first moment."""

from collections.abc import Iterable
from dataclasses import dataclass
from time import time_ns

from muster.coordinator.core.events import Phase, PhaseChanged, Record, RecordState
from muster.coordinator.core.model import Gang
from muster.telemetry import tracing

_ENDED = (Phase.SATISFIED, None)


@dataclass(slots=True)
class _Trace:
    root: str
    started_nanos: int
    phase: str = ""
    """Name of the span of the phase that it is in."""
    phase_started_nanos: int = 0
    ended: bool = False


class GangTraces:
    """Follows gangs through their phases. With tracing off it knows nothing and costs nothing."""

    def __init__(self, recovered: Iterable[tuple[Record, str]] = ()) -> None:
        """`recovered`: records with the traceparents of their gangs' roots."""
        self._traces: dict[str, _Trace] = {}
        if tracing.enabled():
            for record, traceparent in recovered:
                if tracing.from_traceparent(traceparent) is not None:
                    # One that was not permitted has no earlier time than that of its first reservation.
                    began = record.permitted_unix_millis or record.waiting_since_unix_millis
                    self._traces[record.gang] = _Trace(
                        traceparent,
                        began * 1_000_000 or time_ns(),
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
        """Trace id in hexadecimal; "" if there is none."""
        root = self.root_of(gang)
        return root.split("-")[1] if root else ""

    def follow(self, change: PhaseChanged, gang: Gang | None) -> None:
        """A phase ended and another began."""
        if not tracing.enabled():
            return
        now = time_ns()
        if change.before is None and (gang is None or gang.record is None):
            self._traces.pop(change.gang, None)  # of a former gang of that name
        trace = self._traces.get(change.gang)
        if trace is None:
            if change.after in _ENDED:
                return  # there was nothing to follow: it ran when this term began
            trace = self._traces[change.gang] = _Trace(tracing.new_traceparent(), now)
        if change.before is not None and trace.phase:
            tracing.record_span(
                f"gang.{change.before.name.lower()}",
                trace.phase_started_nanos,
                now,
                parent=trace.root,
                traceparent=trace.phase,
                attributes={"muster.gang": change.gang},
            )
        if change.after in _ENDED:
            trace.phase = ""
            if not trace.ended:
                self._end(change, trace, gang, now)
        else:
            trace.phase, trace.phase_started_nanos = tracing.new_traceparent(trace.root), now
        if change.after is None:
            del self._traces[change.gang]

    @staticmethod
    def _end(change: PhaseChanged, trace: _Trace, gang: Gang | None, now: int) -> None:
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
        error = "" if change.after is Phase.SATISFIED else "the gang was deleted before it started"
        tracing.record_span(
            "gang", trace.started_nanos, now, traceparent=trace.root, attributes=attributes, error=error
        )
