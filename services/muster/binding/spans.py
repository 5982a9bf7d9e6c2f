"""What a Bind or Evict call leaves in its gang's trace: an event per pod, or per some of many, and spans of slow pods.

A span keeps 128 events by default, so the pods of a large gang share events. Spans of single pods are bounded, too:
when the API server is down, all pods are slow for the same reason.
"""

import time
from typing import Final

from opentelemetry import trace

from muster.telemetry.tracing import enabled, record_span, to_traceparent

_MOST_EVENTS: Final = 100
_MOST_SPANS: Final = 50
_SLOW_SECONDS: Final = 0.25


class PodTrace:
    """Adds to the span that is current when it is made; free of cost while tracing is off."""

    def __init__(self, verb: str, pods: int) -> None:
        """`verb`: what is done to the pods."""
        self._verb = verb
        self._span = trace.get_current_span()
        self._on = enabled() and self._span.is_recording()
        self._parent = to_traceparent(self._span.get_span_context()) if self._on else ""
        self._pods_per_event = -(-pods // _MOST_EVENTS)
        self._gathered: list[tuple[str, str, str, int]] = []
        self._spans = 0
        if self._on:
            self._span.set_attribute("muster.pods", pods)

    def add(self, uid: str, outcome: str, seconds: float, attempts: int, *, node: str = "", error: str = "") -> None:
        """A pod was settled now, `seconds` after it was first sent."""
        if not self._on:
            return
        self._gathered.append((uid, node, outcome, round(seconds * 1000)))
        if len(self._gathered) >= self._pods_per_event:
            self._flush()
        if (seconds > _SLOW_SECONDS or attempts > 1) and self._spans < _MOST_SPANS:
            self._spans += 1
            now = time.time_ns()
            attributes: dict[str, str | bool | int | float]
            attributes = {"pod.uid": uid, "outcome": outcome, "attempts": attempts}
            if node:
                attributes["node"] = node
            record_span(
                f"{self._verb} pod",
                now - int(seconds * 1e9),
                now,
                parent=self._parent,
                attributes=attributes,
                error=error,
            )

    def close(self) -> None:
        """All pods are settled."""
        if self._on and self._gathered:
            self._flush()

    def _flush(self) -> None:
        uids, nodes, outcomes, milliseconds = zip(*self._gathered, strict=True)
        self._gathered.clear()
        columns = {"uids": uids, "outcomes": outcomes, "milliseconds": milliseconds}
        if any(nodes):
            columns["nodes"] = nodes
        self._span.add_event(f"{self._verb}s", columns)
