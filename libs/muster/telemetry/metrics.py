"""The registry of this process, and the kinds of metrics.

A metric is declared once, at the top of the `metrics.py` of its service or library. Labels have few values, known in
advance; never a pod, a gang or a node. Values that exist anyway are read at scrape time (`sampled`) and cost nothing
until then.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Final

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from muster.telemetry.instruments import Counter, Histogram

__all__ = [
    "CALL_BUCKETS",
    "REGISTRY",
    "SOLVE_BUCKETS",
    "WAIT_BUCKETS",
    "Counter",
    "Histogram",
    "Sampled",
    "counter",
    "expose_build",
    "expose_leadership",
    "histogram",
    "sampled",
]

CALL_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds of one call to another process, or of one step of scheduling."""
SOLVE_BUCKETS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""Seconds of computation."""
WAIT_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
"""Seconds that a gang or a pod waits, from an instant to an hour."""

REGISTRY: Final = CollectorRegistry(auto_describe=True)
ProcessCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)


def counter(name: str, help_text: str, labels: Sequence[str] = (), known: Iterable[tuple[str, ...]] = ()) -> Counter:
    """Declare a counter; its name ends in _total. Series with `known` label values are exposed as 0 from the start."""
    metric = Counter(name, help_text, labels, known)
    REGISTRY.register(metric)
    return metric


def histogram(name: str, help_text: str, buckets: Sequence[float], labels: Sequence[str] = ()) -> Histogram:
    """Declare a histogram."""
    metric = Histogram(name, help_text, buckets, labels)
    REGISTRY.register(metric)
    return metric


Source = Callable[[], Mapping[tuple[str, ...], float]]
"""Values by label values."""


class Sampled(Collector):
    """A gauge or counter that is read from its source at scrape time."""

    def __init__(self, name: str, help_text: str, labels: Sequence[str], *, monotonic: bool) -> None:
        self.name, self.help_text, self.label_names, self.monotonic = name, help_text, tuple(labels), monotonic
        self._source: Source | None = None

    def read_from(self, source: Source | None) -> None:
        """Set the source; None: expose no series."""
        self._source = source

    def describe(self) -> Iterable[Metric]:
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        family = self._family()
        if self._source is not None:
            for values, value in self._source().items():
                family.add_metric(values, value)
        return [family]

    def _family(self) -> CounterMetricFamily | GaugeMetricFamily:
        kind = CounterMetricFamily if self.monotonic else GaugeMetricFamily
        return kind(self.name, self.help_text, labels=self.label_names)


def sampled(name: str, help_text: str, labels: Sequence[str] = (), *, monotonic: bool = False) -> Sampled:
    """Declare a gauge that is read at scrape time; `monotonic`: a counter."""
    metric = Sampled(name, help_text, labels, monotonic=monotonic)
    REGISTRY.register(metric)
    return metric


_BUILD: Final = sampled("muster_build_info", "Service and version of this process; always 1.", ("service", "version"))
_LEADER: Final = sampled(
    "muster_leader", "1 while this replica is leader, otherwise 0. coordinator and lifecycle elect one each."
)


def expose_leadership(leads: bool) -> None:
    """Expose whether this replica is leader; services without an election expose nothing."""
    _LEADER.read_from(lambda: {(): float(leads)})


def expose_build(service: str) -> None:
    """Expose service and version of this process."""
    build = (service, version("muster"))
    _BUILD.read_from(lambda: {build: 1.0})
