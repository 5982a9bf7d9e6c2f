"""Sampling of traces: the decision at the start of a trace holds for all its spans, also after a restart."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.trace import sampling
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, SpanKind
    from opentelemetry.trace.span import TraceState
    from opentelemetry.util.types import Attributes

    from muster.telemetry.tracing import PreassignedIds

_WITHOUT_RATIO: Final = {
    "always_on": sampling.ALWAYS_ON,
    "always_off": sampling.ALWAYS_OFF,
    "parentbased_always_on": sampling.DEFAULT_ON,
    "parentbased_always_off": sampling.DEFAULT_OFF,
}


class PreassignedSampler(Sampler):
    """Samples a span with a preassigned traceparent by its sampled flag, and delegates other spans.

    A gang's root span is recorded last, perhaps by a process with another sampling ratio than the one that decided.
    """

    def __init__(self, ids: "PreassignedIds", delegate: Sampler) -> None:
        self._ids, self._delegate = ids, delegate

    def should_sample(
        self,
        parent_context: "Context | None",
        trace_id: int,
        name: str,
        kind: "SpanKind | None" = None,
        attributes: "Attributes" = None,
        links: "Sequence[Link] | None" = None,
        trace_state: "TraceState | None" = None,
    ) -> SamplingResult:
        assigned = self._ids.assigned
        if assigned is None:
            return self._delegate.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)
        if assigned.trace_flags.sampled:
            return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes, trace_state)
        return SamplingResult(Decision.DROP)

    def get_description(self) -> str:
        return f"PreassignedSampler{{{self._delegate.get_description()}}}"


def sampler_by_name(name: str, ratio: float) -> Sampler:
    """The sampler for a value of OTEL_TRACES_SAMPLER."""
    if name in _WITHOUT_RATIO:
        return _WITHOUT_RATIO[name]
    by_ratio = sampling.TraceIdRatioBased(ratio)
    return sampling.ParentBased(by_ratio) if name.startswith("parentbased_") else by_ratio
