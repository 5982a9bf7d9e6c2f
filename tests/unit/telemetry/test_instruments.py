"""Histograms: buckets, exemplars, and the same output as prometheus_client."""

import math
import random

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client import Histogram as Standard
from prometheus_client.core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as open_metrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from muster.telemetry.instruments import Histogram

BOUNDS = (0.1, 1.0, 10.0)
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-"


def test_output_equals_that_of_prometheus_client() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    mine = Histogram("walk_seconds", "How long.", BOUNDS, ("who",))
    ours.register(mine)
    standard = Standard("walk_seconds", "How long.", ("who",), registry=theirs, buckets=BOUNDS)
    rolled = random.Random(7)
    for value in [0.0, *BOUNDS, 0.1 + 1e-9, 1e9, *(rolled.expovariate(1.0) for _ in range(200))]:
        for who in ("ann", "bob"):
            mine.labels(who).observe(value)
            standard.labels(who).observe(value)

    standards = [
        line for line in _exposed(theirs) if not line.startswith("walk_seconds_created")
    ]  # Muster's have no creation time
    assert sorted(_exposed(ours)) == sorted(standards)


def test_observation_with_a_multiplicity() -> None:
    walks = Histogram("walk_seconds", "How long.", BOUNDS)
    walks.observe(0.5, times=4)

    exposed = {sample.labels.get("le", sample.name): sample.value for sample in next(iter(walks.collect())).samples}
    assert exposed == {"0.1": 0, "1.0": 4, "10.0": 4, "+Inf": 4, "walk_seconds_count": 4, "walk_seconds_sum": 2.0}


@pytest.mark.parametrize(("flags", "sampled"), [("01", True), ("03", True), ("00", False), ("02", False)])
def test_only_sampled_traces_become_exemplars(flags: str, sampled: bool) -> None:
    registry = CollectorRegistry()
    walks = Histogram("walk_seconds", "How long.", BOUNDS)
    registry.register(walks)
    walks.observe(0.5, TRACEPARENT + flags)
    walks.observe(0.5, "")

    [family] = _parsed(registry)
    exemplars = {sample.labels["le"]: sample.exemplar for sample in family.samples if sample.exemplar}
    assert [*exemplars] == (["1.0"] if sampled else [])
    if sampled:
        assert exemplars["1.0"].labels == {"trace_id": "0af7651916cd43dd8448eb211c80319c"}
        assert math.isclose(exemplars["1.0"].value, 0.5)


def test_bucket_keeps_the_newest_exemplar() -> None:
    walks = Histogram("walk_seconds", "How long.", BOUNDS)
    for number in range(100):
        walks.observe(0.5, f"00-{number:032x}-00f067aa0ba902b7-01")

    [metric] = walks.collect()
    exemplars = [sample.exemplar for sample in metric.samples if sample.exemplar]
    assert [exemplar.labels for exemplar in exemplars] == [{"trace_id": f"{99:032x}"}]


def test_wrong_number_of_labels_is_an_error() -> None:
    walks = Histogram("walk_seconds", "How long.", BOUNDS, ("who",))

    with pytest.raises(ValueError, match=r"walk_seconds has the labels \('who',\), got \('ann', 'here'\)"):
        walks.labels("ann", "here")


def _exposed(registry: CollectorRegistry) -> list[str]:
    text: bytes = open_metrics(registry)  # type: ignore[no-untyped-call]
    return text.decode().splitlines()


def _parsed(registry: CollectorRegistry) -> list[Metric]:
    return list(text_string_to_metric_families("\n".join([*_exposed(registry), ""])))  # type: ignore[no-untyped-call]
