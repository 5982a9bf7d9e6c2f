"""Chunks of the stream: small enough for one message, whatever users write into their pods."""

from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace

from builders.clusterstate.history import History, pod_object
from muster.clusterstate.chunks import delta_chunks, snapshot_chunks
from muster.gangs.facts import Batch
from muster.kube.objects import MAX_LABELS
from muster.rpc.watch_codec import batch_step, encode_batch

LARGEST = 8 << 20
"""Far below the 64 MiB of a message."""


def deltas(batch: Batch) -> Iterator[Batch]:
    return delta_chunks(batch, {})


def large_pods(count: int) -> Batch:
    """Pods with much affinity, many labels and many claims, each of its own."""
    history = History()
    for number in range(count):
        values = [f"host-{number}-{each:04}" for each in range(3000)]
        terms = [{"matchExpressions": [{"key": "host", "operator": "NotIn", "values": values}]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        claims = [f"claim-{number}-{each}" + "x" * 200 for each in range(200)]
        history.pods(
            pod_object(
                f"p{number}",
                labels={f"label-{number}-{each}": "x" * 60 for each in range(MAX_LABELS)},
                affinity={"nodeAffinity": required},
                volumes=[{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims],
            )
        )
    return history.state.snapshot()


@pytest.mark.parametrize("cut", [snapshot_chunks, deltas])
def test_messages_are_small_and_complete(cut: Callable[[Batch], Iterator[Batch]]) -> None:
    whole = large_pods(400)
    assert len(encode_batch(whole).SerializeToString()) > 2 * LARGEST
    chunks = list(cut(whole))
    assert max(len(batch_step(each).SerializeToString()) for each in chunks) < LARGEST
    for name in ("pod_classes", "selectors", "label_sets", "pods"):
        assert [one for each in chunks for one in getattr(each, name)] == list(getattr(whole, name))


@pytest.mark.parametrize("cut", [snapshot_chunks, deltas])
def test_classes_and_label_sets_come_before_their_pods(cut: Callable[[Batch], Iterator[Batch]]) -> None:
    classes, label_sets = set[str](), set[str]()
    for each in cut(large_pods(60)):
        classes |= {one.id for one in each.pod_classes}
        label_sets |= {one.id for one in each.label_sets}
        assert {pod.class_id for pod in each.pods} <= classes
        assert {pod.label_set for pod in each.pods} <= label_sets


def test_only_the_last_chunk_of_a_delta_raises_revisions() -> None:
    chunks = list(delta_chunks(replace(large_pods(60), through={"pods": 9}), {"pods": 5}))
    assert len(chunks) > 2
    assert [each.through["pods"] for each in chunks] == [*[5] * (len(chunks) - 1), 9]


def test_small_delta_is_one_chunk() -> None:
    batch = History().pods(*[pod_object(f"p{number}") for number in range(200)])
    assert list(delta_chunks(batch, {})) == [batch]
