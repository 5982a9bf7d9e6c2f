"""What a Bind or Evict call leaves in its gang's trace: an event per pod, or per some of many, and spans of slow pods.

A span keeps 128 events by default, so the pods of a large gang share events. Spans of single pods are bounded, too:
when the API server is down, all pods are slow for the same reason. They are linked to the gang's own span, from which
the whole of its trace is seen.
"""

import time
from typing import Final, NamedTuple

from opentelemetry import trace

from muster.telemetry.tracing import Attribute, enabled, record_span, to_traceparent

_MOST_EVENTS: Final = 100
_MOST_SPANS: Final = 50
_SLOW_SECONDS: Final = 0.25
_TROUBLE_CHARACTERS: Final = 256


class Settled(NamedTuple):
    """What became of a pod."""

    namespace: str
    name: str
    uid: str
    outcome: str
    seconds: float
    """Since it was first sent."""
    attempts: int
    trouble: str = ""
    """Why it was tried again, the last time."""
    node: str = ""


class PodTrace:
    """Adds to the span that is current when it is made; free of cost while tracing is off."""

    def __init__(self, verb: str, pods: int, gang: str = "") -> None:
        """`verb`: what is done to the pods; `gang`: traceparent of the gang's own span."""
        self._verb, self._gang = verb, gang
        self._span = trace.get_current_span()
        context = self._span.get_span_context()
        self.on = enabled() and self._span.is_recording()
        """Something is wanted of it."""
        self._parent = to_traceparent(context) if self.on else ""
        self._pods_per_event = -(-pods // _MOST_EVENTS)
        self._gathered: list[Settled] = []
        self._spans = 0
        self.log_fields: dict[str, str] = {}
        """For lines that are written where the span is not current any more."""
        if context.is_valid:
            self.log_fields = {
                "trace_id": trace.format_trace_id(context.trace_id),
                "span_id": trace.format_span_id(context.span_id),
            }
        if self.on:
            self._span.set_attribute("muster.pods", pods)

    def add(self, pod: Settled, *, error: str = "") -> None:
        """A pod was settled now. To be called only while it is on."""
        self._gathered.append(pod)
        if len(self._gathered) >= self._pods_per_event:
            self._flush()
        if (pod.seconds > _SLOW_SECONDS or pod.attempts > 1) and self._spans < _MOST_SPANS:
            self._spans += 1
            self._record(pod, error)

    def close(self) -> None:
        """All pods are settled."""
        if self.on and self._gathered:
            self._flush()

    def _record(self, pod: Settled, error: str) -> None:
        now = time.time_ns()
        attributes: dict[str, Attribute] = {
            "k8s.namespace.name": pod.namespace,
            "k8s.pod.name": pod.name,
            "k8s.pod.uid": pod.uid,
            "muster.outcome": pod.outcome,
            "muster.attempts": pod.attempts,
        }
        if pod.node:
            attributes["k8s.node.name"] = pod.node
        if pod.trouble:
            attributes["muster.last_trouble"] = pod.trouble[:_TROUBLE_CHARACTERS]
        record_span(
            f"{self._verb} pod",
            now - int(pod.seconds * 1e9),
            now,
            parent=self._parent,
            attributes=attributes,
            links=(self._gang,),
            error=error,
            error_type=pod.outcome if error else "",
        )

    def _flush(self) -> None:
        pods, self._gathered = self._gathered, []
        columns: dict[str, list[str] | list[int]] = {
            "muster.pods": [f"{pod.namespace}/{pod.name}" for pod in pods],
            "muster.outcomes": [pod.outcome for pod in pods],
            "muster.milliseconds": [round(pod.seconds * 1000) for pod in pods],
        }
        if any(pod.node for pod in pods):
            columns["muster.nodes"] = [pod.node for pod in pods]
        self._span.add_event(f"{self._verb}s", columns)
