"""Objects are taken in, and facts computed, until the time of a slice is used, whatever the objects say (I12)."""

import itertools
from collections import deque
from collections.abc import Callable
from typing import Any

from builders.clusterstate.history import History, pod_object, priority_class_object
from muster.clusterstate.recomputation import SLICE
from muster.clusterstate.slice_budget import SLICE_SECONDS
from muster.clusterstate.state import ClusterState
from muster.dialects import volcano
from muster.gangs.facts import Batch
from muster.kube.api_resources import PODS, PRIORITY_CLASSES, definitions
from muster.kube.object_changes import ObjectChanges, Removed


class Clock:
    """Every look at it takes a while: a quarter of a slice."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += SLICE_SECONDS / 4
        return self.now


def timed(clock: Callable[[], float] | None = None) -> History:
    """A history of a replica whose slices end by time."""
    history = History()
    history.state = ClusterState(("muster",), clock=clock or Clock())
    deque(history.state.settle(), maxlen=0)
    return history


def pods(history: History, *names: str, **more: Any) -> list[Any]:
    return [history.stamped(PODS, pod_object(name, **more)) for name in names]


def applied(state: ClusterState, items: list[Any], through: int) -> list[Batch]:
    """The batches of changes that are applied in slices."""
    left: ObjectChanges[Any] | None = ObjectChanges(PODS.kind, items, through)
    batches = []
    while left is not None:
        batch, left = state.apply(left)
        batches.append(batch)
    while state.has_work:
        batches.append(state.advance())
    return batches


def test_i12_changes_that_take_long_are_taken_in_by_several_slices() -> None:
    history = timed()
    names = [f"p{number}" for number in range(10)]
    batches = applied(history.state, pods(history, *names), history.revision)
    assert len(batches) >= 3
    assert [pod.name for each in batches for pod in each.pods] == names, "all, once, in order"
    assert all(each.pods for each in batches[:-1])


def test_i12_a_revision_is_published_when_all_its_objects_are_in() -> None:
    history = timed()
    applied(history.state, pods(history, "first"), history.revision)
    before = history.revision
    batches = applied(history.state, pods(history, *(f"p{number}" for number in range(10))), history.revision)
    assert all((each.through["pods"], each.changed) == (before, {}) for each in batches[:-1])
    assert batches[-1].through["pods"] == batches[-1].changed["pods"] == history.revision


def test_i12_changes_of_other_kinds_between_slices_do_not_raise_the_revision() -> None:
    history = timed()
    changes = ObjectChanges(PODS.kind, pods(history, *(f"p{number}" for number in range(10))), history.revision)
    _, left = history.state.apply(changes)
    assert left is not None
    classes = [history.stamped(PRIORITY_CLASSES, priority_class_object("high", 5))]
    between, none = history.state.apply(ObjectChanges(PRIORITY_CLASSES.kind, classes, history.revision))
    assert none is None
    assert "pods" not in between.through
    batches = applied(history.state, left.items, left.through)
    assert all("pods" not in each.through for each in batches[:-1])
    assert batches[-1].through == {PODS.kind: left.through, PRIORITY_CLASSES.kind: history.revision}


def test_i12_one_object_is_taken_in_however_long_it_takes() -> None:
    history = timed(clock=itertools.count().__next__)
    batches = applied(history.state, pods(history, "a", "b", "c"), history.revision)
    assert [[pod.name for pod in each.pods] for each in batches] == [["a"], ["b"], ["c"]]


def test_i12_slices_have_the_result_of_one_batch() -> None:
    sliced, whole = timed(), History()
    marked = {"scheduling.x-k8s.io/pod-group": "g"}
    for history in (sliced, whole):
        items = pods(history, *(f"p{number}" for number in range(10)), labels=marked)
        items += [Removed("uid-p3", history._next()), *pods(history, "p4", node="n", labels=marked)]
        applied(history.state, items, history.revision)
    one, other = sliced.state.snapshot(), whole.state.snapshot()
    assert (one.pods, one.gangs, one.pod_classes) == (other.pods, other.gangs, other.pod_classes)
    assert one.through == other.through


def test_i12_what_one_object_changes_of_many_is_computed_by_time_too() -> None:
    history = timed()
    names = [f"p{number}" for number in range(SLICE // 10)]
    applied(history.state, pods(history, *names, priorityClassName="high"), history.revision)
    classes = [history.stamped(PRIORITY_CLASSES, priority_class_object("high", 5))]
    batch, _ = history.state.apply(ObjectChanges(PRIORITY_CLASSES.kind, classes, history.revision))
    batches = [batch]
    while history.state.has_work:
        batches.append(history.state.advance())
    assert len(batches) >= 5
    assert sum(len(each.pods) for each in batches) == len(names)
    assert all(PRIORITY_CLASSES.kind not in each.through for each in batches[:-1])
    assert batches[-1].through[PRIORITY_CLASSES.kind] == history.revision


def test_i12_gangs_with_large_declarations_are_computed_by_several_slices() -> None:
    history = timed(lambda: 0.0)
    volcano_groups = definitions(volcano.DEFINITION)
    policies = [
        {"name": f"s{index}", "subGroupSize": 1, "labelSelector": {"matchLabels": {"a": str(index)}}}
        for index in range(20)
    ]
    groups = [
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": f"g{number}", "namespace": "ml", "uid": f"uid-{number}"},
            "spec": {"minMember": 1, "subGroupPolicy": policies},
        }
        for number in range(100)
    ]
    items = [history.stamped(volcano_groups, each) for each in groups]
    left: ObjectChanges[Any] | None = ObjectChanges(volcano_groups.kind, items, history.revision)
    sizes = []
    while left is not None:
        batch, left = history.state.apply(left)
        sizes.append(len(batch.gangs))
    assert sum(sizes) == 100
    assert 1 <= max(sizes) <= 40, "about 1 ms each"
