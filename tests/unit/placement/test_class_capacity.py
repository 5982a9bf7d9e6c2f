"""Capacity of classes: how much of the cache of a capacity state each counts for."""

import pytest

from builders.gangs.labels import with_labels
from builders.placement.clusters import alone, answers, pod_class
from builders.placement.inter_pod_rules import HOST, member, preferred_affinity, rack
from muster.gangs.facts import Batch, PodClass
from muster.placement.state.cluster import Cluster


def with_terms(name: str, terms: int) -> PodClass:
    [term] = preferred_affinity(-1, HOST)["preferred_pod_affinity"]
    return member(name, preferred_pod_affinity=(term,) * terms)


def cluster(*classes: PodClass) -> Cluster:
    built = Cluster()
    built.apply(with_labels(Batch(pod_classes=classes, nodes=(*rack("r0", {"a": 8, "b": 8}),)), {}))
    built.state.refresh()
    return built


def test_a_class_counts_for_its_rules() -> None:
    built = cluster(pod_class("plain"), with_terms("few", 1), with_terms("many", 200))
    assert [built.state.of(each).cells for each in ("plain", "few", "many")] == [1, 16, 201]


def test_i11_classes_with_many_rules_leave_the_cache_early(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"c{number}" for number in range(40)]
    built = cluster(*(with_terms(name, 50) for name in names))
    monkeypatch.setattr("muster.placement.state.capacity._CACHED_CELLS", 1_000 * built.state.nodes.rows)
    for name in names:
        answers(built, alone("g", (name, 1)))
    assert list(vars(built.state)["_classes"]) == names[-19:], "19 times 51 cells of 1,000"
    built.apply(Batch(removed_pod_classes=tuple(names)))
    assert vars(built.state)["_cached_cells"] == 0
