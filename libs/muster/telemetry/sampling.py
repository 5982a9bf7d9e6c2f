"""Which traces are kept: what was decided when a trace began counts for all of it, also after a restart."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.trace import sampling
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, SpanKind
    from opentelemetry.trace.span import TraceState
    from opentelemetry.util.types import Attributes

    from muster.telemetry.tracing import GivenIds

_WITHOUT_RATIO: Final = {
    "always_on": sampling.ALWAYS_ON,
    "always_off": sampling.ALWAYS_OFF,
    "parentbased_always_on": sampling.DEFAULT_ON,
    "parentbased_always_off": sampling.DEFAULT_OFF,
}


class AsDecided(Sampler):
    """A span whose name was given out before is kept or not as its name says; of others another sampler decides.

    A gang's first span is recorded last, perhaps by a process that was told of another share than the one that decided.
    """

    def __init__(self, ids: "GivenIds", others: Sampler) -> None:
        self._ids, self._others = ids, others

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
        given = self._ids.given
        if given is None:
            return self._others.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)
        if given.trace_flags.sampled:
            return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes, trace_state)
        return SamplingResult(Decision.DROP)

    def get_description(self) -> str:
        return f"AsDecided{{{self._others.get_description()}}}"


def sampler_of(name: str, ratio: float) -> Sampler:
    """The sampler that OTEL_TRACES_SAMPLER names."""
    if name in _WITHOUT_RATIO:
        return _WITHOUT_RATIO[name]
    by_ratio = sampling.TraceIdRatioBased(ratio)
    return sampling.ParentBased(by_ratio) if name.startswith("parentbased_") else by_ratio
