"""Counters that cost no more than an addition; like the histograms here they are for the event loop alone."""

from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector


class Count:
    """What was counted with the same labels."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, times: int = 1) -> None:
        """So many more."""
        self.value += times


class Counter(Collector):
    """A metric of the type counter."""

    def __init__(
        self, name: str, meaning: str, labels: Sequence[str] = (), known: Iterable[tuple[str, ...]] = ()
    ) -> None:
        if not name.endswith("_total"):
            raise ValueError(f"the name of a counter ends in _total, got {name!r}")
        self.name, self.meaning, self.label_names = name, meaning, tuple(labels)
        self._counts: dict[tuple[str, ...], Count] = {}
        for values in known if labels else [()]:
            self.labels(*values)

    def labels(self, *values: str) -> Count:
        """The count with these values of the labels. Keep it where it is used often."""
        count = self._counts.get(values)
        if count is None:
            if len(values) != len(self.label_names):
                raise ValueError(f"{self.name} has the labels {self.label_names}, got {values!r}")
            count = self._counts[values] = Count()
        return count

    def add(self, times: int = 1) -> None:
        """As of a count, for a counter without labels."""
        self.labels().add(times)

    def describe(self) -> Iterable[Metric]:
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        family = self._family()
        for values, count in self._counts.items():
            family.add_metric(values, count.value)
        return [family]

    def _family(self) -> CounterMetricFamily:
        return CounterMetricFamily(self.name, self.meaning, labels=self.label_names)
