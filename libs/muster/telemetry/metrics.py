"""Metrics: one registry per process, and the few kinds of figures that are told.

A metric is declared once, at the top of the `metrics.py` of the service or library that it is about. Its labels have
few values that are known beforehand; a pod, a gang or a node is never one. What is counted anyway is read when somebody
asks (`sampled`) and costs nothing until then.
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
    "histogram",
    "sampled",
    "tell_build",
    "tell_leading",
]

CALL_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds of one call to another process, or of one step of scheduling."""
SOLVE_BUCKETS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""Seconds of computing."""
WAIT_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
"""Seconds that a gang or a pod waits, from an instant to an hour."""

REGISTRY: Final = CollectorRegistry(auto_describe=True)
ProcessCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)


def counter(name: str, meaning: str, labels: Sequence[str] = (), known: Iterable[tuple[str, ...]] = ()) -> Counter:
    """What only rises; the name ends in _total. The series of `known` labels are told before anything was counted."""
    made = Counter(name, meaning, labels, known)
    REGISTRY.register(made)
    return made


def histogram(name: str, meaning: str, buckets: Sequence[float], labels: Sequence[str] = ()) -> Histogram:
    """How figures are distributed."""
    made = Histogram(name, meaning, buckets, labels)
    REGISTRY.register(made)
    return made


Source = Callable[[], Mapping[tuple[str, ...], float]]
"""Figures by the values of their labels."""


class Sampled(Collector):
    """A gauge or counter that is read from where it is known when somebody asks for the metrics."""

    def __init__(self, name: str, meaning: str, labels: Sequence[str], *, rises: bool) -> None:
        self.name, self.meaning, self.label_names, self.rises = name, meaning, tuple(labels), rises
        self._source: Source | None = None

    def read_from(self, source: Source | None) -> None:
        """Ask there from now on; None: nothing is told."""
        self._source = source

    def describe(self) -> Iterable[Metric]:
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        family = self._family()
        if self._source is not None:
            for values, figure in self._source().items():
                family.add_metric(values, figure)
        return [family]

    def _family(self) -> CounterMetricFamily | GaugeMetricFamily:
        kind = CounterMetricFamily if self.rises else GaugeMetricFamily
        return kind(self.name, self.meaning, labels=self.label_names)


def sampled(name: str, meaning: str, labels: Sequence[str] = (), *, rises: bool = False) -> Sampled:
    """What is known anyway. `rises`: it is a counter."""
    made = Sampled(name, meaning, labels, rises=rises)
    REGISTRY.register(made)
    return made


_BUILD: Final = sampled("muster_build_info", "Which Muster this is; always 1.", ("service", "version"))
_LEADER: Final = sampled(
    "muster_leader", "1 while this replica leads, otherwise 0. One of coordinator does, and one of lifecycle."
)


def tell_leading(leads: bool) -> None:
    """Say whether this replica leads; replicas of services that elect nobody say nothing."""
    _LEADER.read_from(lambda: {(): float(leads)})


def tell_build(service: str) -> None:
    """Say which service and version this process is."""
    build = (service, version("muster"))
    _BUILD.read_from(lambda: {build: 1.0})
