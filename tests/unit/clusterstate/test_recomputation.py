"""One object that concerns all pods or nodes is computed in slices, and revisions rise when all of it is (I12)."""

from typing import Any

import pytest

from builders.clusterstate.history import (
    SCHEDULING_SPECS,
    X_POD_GROUPS,
    History,
    Object,
    budget_object,
    node_object,
    pod_group_object,
    pod_object,
    priority_class_object,
    scheduling_spec_object,
)
from builders.kube.storage import (
    claim_object,
    class_object,
    csi_node_object,
    driver_object,
    local_class,
    local_volume,
    segment_object,
    using,
)
from muster.clusterstate import label_sets, pod_classes, state
from muster.clusterstate.recomputation import SLICE
from muster.clusterstate.state import ClusterState
from muster.gangs.facts import Batch
from muster.kube.api_resources import (
    BUDGETS,
    CLAIMS,
    CSI_DRIVERS,
    CSI_NODES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    VOLUMES,
    ApiResource,
)
from muster.kube.object_changes import ObjectChanges, Removed

SIZE = 3 * SLICE
ONE_POD = ("ReadWriteOncePod",)


def cluster() -> History:
    """Nodes, each with a local volume, and pods that each claim one."""
    history = History()
    history.put(STORAGE_CLASSES, local_class(), class_object())
    history.put(NODES, *(node_object(f"n{number}") for number in range(SIZE)))
    history.put(VOLUMES, *(local_volume(f"v{number}", f"n{number}") for number in range(SIZE)))
    history.put(CLAIMS, *(claim_object(f"c{number}", storage_class="local") for number in range(SIZE)))
    history.put(CLAIMS, *(claim_object(f"d{number}") for number in range(SIZE)))
    pods = (
        pod_object(f"x{number}", volumes=using(f"c{number}", f"d{number}"), priorityClassName="high", owner="job")
        for number in range(SIZE)
    )
    history.put(PODS, *pods)
    completed(history)
    return history


def completed(history: History) -> list[Batch]:
    """The batches of what changes have left."""
    batches = []
    while history.state.has_work:
        batches.append(history.state.advance())
    return batches


def facts_of(state: ClusterState) -> Batch:
    """Everything that a subscriber knows, in the same order for all."""
    snapshot = state.snapshot()
    used = {pod.class_id for pod in snapshot.pods}
    return Batch(
        nodes=tuple(sorted(snapshot.nodes, key=lambda each: each.name)),
        pods=tuple(sorted(snapshot.pods, key=lambda each: each.uid)),
        pod_classes=tuple(sorted((each for each in snapshot.pod_classes if each.id in used), key=lambda each: each.id)),
        gangs=tuple(sorted(snapshot.gangs, key=lambda each: each.id)),
        budgets=snapshot.budgets,
        through=snapshot.through,
    )


CHANGES: dict[str, tuple[ApiResource[Any], Object]] = {
    "size of static volumes": (VOLUMES, local_volume("new", "n0", "500Mi")),
    "StorageClass": (STORAGE_CLASSES, local_class() | {"provisioner": "disk.example.com"}),
    "attach limit": (CSI_NODES, csi_node_object("n0", **{"disk.example.com": 5})),
    "CSIStorageCapacity": (STORAGE_CAPACITIES, segment_object("all", {}, "9Gi", largest="2Gi")),
    "PriorityClass": (PRIORITY_CLASSES, priority_class_object("high", 7)),
    "PodDisruptionBudget": (BUDGETS, budget_object("b", {})),
    "SchedulingSpec": (SCHEDULING_SPECS, scheduling_spec_object("s", "job", minAvailable=2, nodeSelector={"a": "b"})),
}


@pytest.mark.parametrize("name", CHANGES)
def test_i12_one_object_that_concerns_all_is_computed_in_slices(name: str) -> None:
    resource, item = CHANGES[name]
    history = cluster()
    if resource is STORAGE_CAPACITIES:
        history.put(CSI_DRIVERS, driver_object())
    before = dict(history.state.through)
    first = history.put(resource, item)
    batches = [first, *completed(history)]
    assert len(batches) >= 3
    assert all(len(each.pods) + len(each.gangs) <= SLICE and len(each.nodes) <= SLICE for each in batches)
    assert all(
        len(each.static_volumes + each.removed_static_volumes + each.static_claims + each.removed_static_claims)
        <= SLICE
        for each in batches
    )
    assert sum(len(each.pods) + len(each.nodes) for each in batches) >= SIZE
    for each in batches[:-1]:
        assert each.through.get(resource.kind) == before.get(resource.kind), "subscribers must not take it for all"
        assert resource.kind not in each.changed
    assert batches[-1].through[resource.kind] == batches[-1].changed[resource.kind] == history.revision


def test_i12_priority_classes_concern_gangs_in_slices() -> None:
    history = History()
    history.put(X_POD_GROUPS, *(pod_group_object(f"g{number}") for number in range(SIZE)))
    history.put(PRIORITY_CLASSES, priority_class_object("low", 1, is_default=True))
    assert len(completed(history)) >= 3


def test_i12_volumes_of_a_class_without_provisioner_are_counted_in_slices() -> None:
    history = History()
    history.put(NODES, *(node_object(f"n{number}") for number in range(SIZE)))
    history.put(VOLUMES, *(local_volume(f"v{number}", f"n{number}") for number in range(SIZE)))
    history.put(CLAIMS, *(claim_object(f"c{number}", storage_class="local") for number in range(SIZE)))
    history.put(PODS, *(pod_object(f"x{number}", volumes=using(f"c{number}")) for number in range(SIZE)))
    completed(history)
    batches = [history.put(STORAGE_CLASSES, local_class()), *completed(history)]
    counted = [len(each.static_volumes) + len(each.static_claims) for each in batches]
    assert max(counted) <= SLICE
    assert sum(counted) == 2 * SIZE
    assert all(len(each.pods) + len(each.nodes) <= SLICE for each in batches)
    for kind in ("nodes", "pods"):
        first = next(number for number, each in enumerate(batches) if getattr(each, kind))
        assert not any(counted[first + 1 :]), "what nodes offer and pods request depends on all volumes"
    assert sum(len(each.nodes) for each in batches) == SIZE
    assert all(each.through.get(STORAGE_CLASSES.kind) != history.revision for each in batches[:-1])
    assert batches[-1].through[STORAGE_CLASSES.kind] == history.revision


def test_i12_nodes_with_many_limited_drivers_are_computed_in_smaller_slices() -> None:
    history = History()
    history.put(NODES, *(node_object(f"n{number}") for number in range(SIZE)))
    limits = {f"d{number}.example.com": number + 1 for number in range(200)}
    batches = [history.put(CSI_NODES, csi_node_object("n0", **limits)), *completed(history)]
    assert sum(len(each.nodes) for each in batches) == SIZE
    assert max(sum(len(node.allocatable) for node in each.nodes) for each in batches) <= 20 * SLICE


def test_a_slice_by_slice_change_has_the_result_of_a_later_list() -> None:
    history = cluster()
    for resource, item in CHANGES.values():
        history.put(resource, item)
    batches = completed(history)
    assert sum(len(each.pods) for each in batches) <= 2 * SIZE, "a pod that is queued is not queued again"
    again = cluster()
    for resource, item in CHANGES.values():
        again.put(resource, item)
        completed(again)
    assert facts_of(history.state) == facts_of(again.state)


def test_i12_many_changes_that_concern_all_are_computed_once() -> None:
    history = cluster()
    history.put(VOLUMES, *(local_volume(f"new{number}", "n0", f"{number + 2}Gi") for number in range(100)))
    assert len(completed(history)) <= (2 * SIZE) // SLICE + 1


def test_changes_of_few_facts_do_not_wait_for_others() -> None:
    history = cluster()
    history.put(VOLUMES, local_volume("new", "n0", "7Gi"))
    assert history.state.has_work
    batch = history.put(PODS, pod_object("small"))
    assert (batch.through[PODS.kind], batch.changed[PODS.kind]) == (history.revision, history.revision)
    assert [pod.name for pod in batch.pods] == ["small"]


def test_a_snapshot_in_between_has_the_revisions_of_before() -> None:
    history = cluster()
    before = history.state.through[VOLUMES.kind]
    history.put(VOLUMES, local_volume("new", "n0", "7Gi"))
    history.state.advance()
    assert history.state.snapshot().through[VOLUMES.kind] == before
    completed(history)
    assert history.state.snapshot().through[VOLUMES.kind] == history.revision


def test_further_changes_of_the_kind_wait_for_their_turn_only() -> None:
    """A kind that always has work reaches its revisions nevertheless, one after another."""
    history = cluster()
    reached = []
    for number in range(20):
        item = local_class() | ({"provisioner": "disk.example.com"} if number % 2 else {})
        history.put(STORAGE_CLASSES, item)
        history.state.advance()
        reached.append(history.state.through[STORAGE_CLASSES.kind])
    assert len(set(reached)) > 2, "although the queue was never empty"


def test_a_restarted_history_does_not_reach_revisions_of_before() -> None:
    history = cluster()
    history.put(VOLUMES, local_volume("new", "n0", "7Gi"))
    batch, _ = history.state.apply(ObjectChanges(VOLUMES.kind, [Removed("uid-volume-new")], through=5))
    assert history.state.take_history_restarted()
    batches = [batch, *completed(history)]
    assert all(each.through[VOLUMES.kind] < 5 for each in batches[:-1])
    assert batches[-1].through[VOLUMES.kind] == 5
    assert all(each.changed.get(VOLUMES.kind, 0) <= 5 for each in batches)


def test_i12_a_pod_more_of_a_claim_for_one_pod_concerns_no_other() -> None:
    history = History()
    history.put(CLAIMS, claim_object("one", modes=ONE_POD))
    for number in range(SIZE):
        batch = history.put(PODS, pod_object(f"x{number}", volumes=using("one"), second=min(number, 59)))
        assert not history.state.has_work
        assert [pod.name for pod in batch.pods] == [f"x{number}"]


def test_the_next_pod_of_a_claim_for_one_pod_holds_it_when_the_first_ends() -> None:
    history = History()
    history.put(CLAIMS, claim_object("one", modes=ONE_POD))
    history.put(PODS, *(pod_object(name, volumes=using("one"), second=at) for at, name in enumerate("abc")))
    batch = history.remove(PODS, "uid-a")
    assert {pod.name for pod in batch.pods} == {"b", "c"}
    assert '"b" has it' in history.state.pods.facts["uid-c"].problem
    batch = history.put(PODS, pod_object("c", volumes=using("one"), second=2, node="n"))
    assert '"c" has it' in history.state.pods.facts["uid-b"].problem


def test_a_removed_budget_is_removed_after_the_pods_that_name_it() -> None:
    history = cluster()
    history.put(BUDGETS, budget_object("b", {}))
    completed(history)
    batches = [history.remove(BUDGETS, "uid-budget-b"), *completed(history)]
    assert all(not each.removed_budgets for each in batches[:-1])
    assert batches[-1].removed_budgets == ("ml/b",)
    assert not any(pod.budgets for pod in history.state.pods.facts.values())


def of_gang(name: str) -> dict[str, str]:
    return {"gang.scheduling.koordinator.sh/name": name, "gang.scheduling.koordinator.sh/min-available": "1"}


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(pod_classes, "SWEPT_AT_ONCE", 5)
    monkeypatch.setattr(label_sets, "SWEPT_AT_ONCE", 5)
    monkeypatch.setattr(state, "SLICE", 5)
    return 5


def test_i12_few_unused_classes_and_label_sets_are_dropped_in_one_piece(few_at_once: int) -> None:
    history = History()
    history.pods(*(pod_object(f"p{number}", cpu=str(number + 1), labels={"n": str(number)}) for number in range(20)))
    for number in range(20):
        history.remove(PODS, f"uid-p{number}")
    history.state.sweep()
    completed(history)
    batches = [history.state.sweep(), *completed(history)]
    classes = [len(each.removed_pod_classes) for each in batches]
    sets = [len(each.removed_label_sets) for each in batches]
    assert (sum(classes), sum(sets)) == (20, 20)
    assert max(map(sum, zip(classes, sets, strict=True))) <= few_at_once
    assert (history.state.snapshot().pod_classes, history.state.snapshot().label_sets) == ((), ())


def test_classes_and_label_sets_that_come_back_during_a_sweep_stay(few_at_once: int) -> None:
    history = History()
    pods = [pod_object(f"p{number}", cpu=str(number + 1), labels={"n": str(number)}) for number in range(20)]
    history.pods(*pods)
    for number in range(20):
        history.remove(PODS, f"uid-p{number}")
    history.state.sweep()
    completed(history)
    history.state.sweep()
    history.pods(*pods)
    for number in range(10):
        history.remove(PODS, f"uid-p{number}")
    completed(history)
    known = history.state.snapshot()
    named = {(pod.class_id, pod.label_set) for pod in known.pods}
    assert len(named) == 10
    assert {class_id for class_id, _ in named} <= {each.id for each in known.pod_classes}
    assert {label_set for _, label_set in named} <= {each.id for each in known.label_sets}


def test_i12_few_gangs_are_computed_in_one_piece_after_the_first_lists(few_at_once: int) -> None:
    history = History(settled=False)
    history.page(PODS, *(pod_object(f"p{number}", annotations=of_gang(f"g{number}")) for number in range(20)))
    counts = [len(history.state.gangs.facts) for _ in history.state.settle()]
    assert len(history.state.snapshot().gangs) == 20
    assert max(after - before for before, after in zip([0, *counts], [*counts, 20], strict=False)) <= few_at_once


def test_changes_while_gangs_are_computed_after_the_first_lists_are_in_them(few_at_once: int) -> None:
    history = History(settled=False)
    history.page(PODS, *(pod_object(f"p{number}", annotations=of_gang(f"g{number}")) for number in range(20)))
    for number, _ in enumerate(history.state.settle()):
        history.pods(pod_object(f"late{number}", annotations=of_gang(f"late{number}")))
    assert len(history.state.snapshot().gangs) == 20 + number + 1
