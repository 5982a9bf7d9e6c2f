"""Records a Bind or Evict call in its gang's trace: span events for batches of pods, and spans of slow pods.

A span keeps 128 events by default, so the pods of a large gang share events. The number of pod spans is bounded: when
the API server is down, all pods are slow for the same reason. Pod spans link to the gang's own span, which leads to the
whole trace.
"""

import time
from typing import Final, NamedTuple

from opentelemetry import trace

from muster.telemetry.tracing import Attribute, enabled, record_span, to_traceparent

_MAX_EVENTS: Final = 100
_MAX_SPANS: Final = 50
_SLOW_SECONDS: Final = 0.25
_MAX_FAILURE_CHARACTERS: Final = 256


class SettledPod(NamedTuple):
    """The result of a pod."""

    namespace: str
    name: str
    uid: str
    outcome: str
    seconds: float
    """Since the first attempt."""
    attempts: int
    last_failure: str = ""
    """Reason of the last retry."""
    node: str = ""


class CallTrace:
    """Adds events to the span that is current at construction; costs nothing while tracing is off."""

    def __init__(self, verb: str, pods: int, gang: str = "") -> None:
        """`verb`: "bind" or "evict"; `gang`: traceparent of the gang's own span."""
        self._verb, self._gang = verb, gang
        self._span = trace.get_current_span()
        context = self._span.get_span_context()
        self.on = enabled() and self._span.is_recording()
        """The span is recorded."""
        self._parent = to_traceparent(context) if self.on else ""
        self._pods_per_event = -(-pods // _MAX_EVENTS)
        self._batch: list[SettledPod] = []
        self._spans = 0
        self.log_fields: dict[str, str] = {}
        """Trace fields for log lines written where the span is not current any more."""
        if context.is_valid:
            self.log_fields = {
                "trace_id": trace.format_trace_id(context.trace_id),
                "span_id": trace.format_span_id(context.span_id),
            }
        if self.on:
            self._span.set_attribute("muster.pods", pods)

    def add(self, pod: SettledPod, *, error: str = "") -> None:
        """Record a pod that was settled now. Call only while `on`."""
        self._batch.append(pod)
        if len(self._batch) >= self._pods_per_event:
            self._flush()
        if (pod.seconds > _SLOW_SECONDS or pod.attempts > 1) and self._spans < _MAX_SPANS:
            self._spans += 1
            self._record(pod, error)

    def close(self) -> None:
        """Record the last batch."""
        if self.on and self._batch:
            self._flush()

    def _record(self, pod: SettledPod, error: str) -> None:
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
        if pod.last_failure:
            attributes["muster.last_failure"] = pod.last_failure[:_MAX_FAILURE_CHARACTERS]
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
        pods, self._batch = self._batch, []
        columns: dict[str, list[str] | list[int]] = {
            "muster.pods": [f"{pod.namespace}/{pod.name}" for pod in pods],
            "muster.outcomes": [pod.outcome for pod in pods],
            "muster.milliseconds": [round(pod.seconds * 1000) for pod in pods],
        }
        if any(pod.node for pod in pods):
            columns["muster.nodes"] = [pod.node for pod in pods]
        self._span.add_event(f"{self._verb}s", columns)
