"""Counters and histograms without locks, for use on the event loop only; histograms keep an exemplar per bucket.

Counting is an addition, an observation takes a fifth of a microsecond: a tenth of prometheus_client's, which locks
twice and validates every exemplar. A series keeps two numbers and one exemplar per bucket.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from math import inf
from time import time
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, Exemplar, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

_SAMPLED: Final = frozenset("13579bdf")  # last digit of the traceparent of a sampled trace: the sampled flag is set


class _Exemplar(NamedTuple):
    trace_id: str
    value: float
    unix_seconds: float


class Series:
    """Observations with the same label values."""

    __slots__ = ("_bounds", "counts", "exemplars", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Observations per bucket, not cumulative; the last bucket is above all bounds."""
        self.exemplars: list[_Exemplar | None] = [None] * len(self.counts)
        self.total = 0.0

    def observe(self, value: float, traceparent: str = "", times: int = 1) -> None:
        """Add an observation, or `times` equal ones; the trace of `traceparent` becomes the bucket's exemplar."""
        bucket = bisect_left(self._bounds, value)
        self.counts[bucket] += times
        self.total += value * times
        if traceparent[-1:] in _SAMPLED:
            self.exemplars[bucket] = _Exemplar(traceparent[3:35], value, time())


class Histogram(Collector):
    """A metric of the type histogram."""

    def __init__(self, name: str, help_text: str, bounds: Sequence[float], labels: Sequence[str] = ()) -> None:
        """`bounds`: upper bounds of the buckets, ascending, without +Inf."""
        self.name, self.help_text, self.label_names, self._bounds = name, help_text, tuple(labels), tuple(bounds)
        self._series: dict[tuple[str, ...], Series] = {}
        self._only = None if labels else self.labels()

    def labels(self, *values: str) -> Series:
        """The series with these label values. Keep a reference in hot paths."""
        series = self._series.get(values)
        if series is None:
            if len(values) != len(self.label_names):
                raise ValueError(f"{self.name} has the labels {self.label_names}, got {values!r}")
            series = self._series[values] = Series(self._bounds)
        return series

    def observe(self, value: float, traceparent: str = "", times: int = 1) -> None:
        """`Series.observe` of a histogram without labels."""
        assert self._only is not None, f"{self.name} has labels"
        self._only.observe(value, traceparent, times)

    def describe(self) -> Iterable[Metric]:
        return [Metric(self.name, self.help_text, "histogram")]

    def collect(self) -> Iterable[Metric]:
        metric = Metric(self.name, self.help_text, "histogram")
        for values, series in self._series.items():
            self._add(metric, dict(zip(self.label_names, values, strict=True)), series)
        return [metric]

    def _add(self, metric: Metric, labels: dict[str, str], series: Series) -> None:
        cumulative = 0
        for bound, count, latest in zip((*self._bounds, inf), series.counts, series.exemplars, strict=True):
            cumulative += count
            exemplar = latest and Exemplar({"trace_id": latest.trace_id}, latest.value, latest.unix_seconds)
            bucket = labels | {"le": floatToGoString(bound)}  # type: ignore[no-untyped-call]
            metric.add_sample(f"{self.name}_bucket", bucket, cumulative, exemplar=exemplar)
        metric.add_sample(f"{self.name}_count", labels, cumulative)
        metric.add_sample(f"{self.name}_sum", labels, series.total)


class Count:
    """A count of one set of label values."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, times: int = 1) -> None:
        """Increase the count."""
        self.value += times


class Counter(Collector):
    """A metric of the type counter."""

    def __init__(
        self, name: str, help_text: str, labels: Sequence[str] = (), known: Iterable[tuple[str, ...]] = ()
    ) -> None:
        if not name.endswith("_total"):
            raise ValueError(f"the name of a counter must end in _total, got {name!r}")
        self.name, self.help_text, self.label_names = name, help_text, tuple(labels)
        self._counts: dict[tuple[str, ...], Count] = {}
        for values in known if labels else [()]:
            self.labels(*values)

    def labels(self, *values: str) -> Count:
        """The count with these label values. Keep a reference in hot paths."""
        count = self._counts.get(values)
        if count is None:
            if len(values) != len(self.label_names):
                raise ValueError(f"{self.name} has the labels {self.label_names}, got {values!r}")
            count = self._counts[values] = Count()
        return count

    def add(self, times: int = 1) -> None:
        """`Count.add` of a counter without labels."""
        self.labels().add(times)

    def describe(self) -> Iterable[Metric]:
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        family = self._family()
        for values, count in self._counts.items():
            family.add_metric(values, count.value)
        return [family]

    def _family(self) -> CounterMetricFamily:
        return CounterMetricFamily(self.name, self.help_text, labels=self.label_names)
