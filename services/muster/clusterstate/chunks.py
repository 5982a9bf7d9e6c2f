"""Cuts snapshots and large deltas into batches that are small enough to encode without blocking the event loop."""

from collections.abc import Iterator
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from muster.gangs.facts import Batch

T = TypeVar("T")

CHUNK_OBJECTS: Final = 1000
"""Encoding so many takes a few milliseconds, during which nothing else runs."""

_LEAVES_PER_CHANGE: Final = 10
"""Nodes of a tree that take as much memory as one object of another kind."""


def snapshot_chunks(snapshot: Batch) -> Iterator[Batch]:
    """Batches that make up the whole state: classes come before the pods that name them.

    Revisions are left out, because they hold only for the whole.
    """
    for classes in _cut(snapshot.pod_classes):
        yield Batch(pod_classes=classes)
    for nodes in _cut(snapshot.nodes):
        yield Batch(nodes=nodes)
    for tree in snapshot.trees:  # large by itself
        yield Batch(trees=(tree,))
    for gangs in _cut(snapshot.gangs):
        yield Batch(gangs=gangs)
    for budgets in _cut(snapshot.budgets):
        yield Batch(budgets=budgets)
    for pods in _cut(snapshot.pods):
        yield Batch(pods=pods)


def delta_chunks(delta: Batch, through: dict[str, int]) -> Iterator[Batch]:
    """The delta, or several that make it up if it has very many pods, as after a selector that selects all of them.

    Only the last one raises the revisions, so that a subscriber that waits for one sees the whole delta; the others
    carry `through`, the revisions before the delta.
    """
    chunks = list(_cut(delta.pods))
    if len(chunks) > 1:
        yield Batch(pod_classes=delta.pod_classes, pods=chunks[0], through=through)
        for pods in chunks[1:-1]:
            yield Batch(pods=pods, through=through)
        delta = replace(delta, pod_classes=(), pods=chunks[-1])
    yield delta


def object_count(snapshot: Batch) -> int:
    """Number of objects in a snapshot."""
    parts: tuple[tuple[Any, ...], ...] = (
        snapshot.pod_classes,
        snapshot.nodes,
        snapshot.gangs,
        snapshot.pods,
        snapshot.budgets,
        snapshot.trees,
    )
    return sum(map(len, parts))


def change_count(delta: Batch) -> int:
    """Number of objects that a delta changes or removes; a tree counts by its size."""
    return (
        len(delta.nodes)
        + len(delta.removed_nodes)
        + len(delta.pods)
        + len(delta.removed_pods)
        + len(delta.gangs)
        + len(delta.removed_gangs)
        + len(delta.budgets)
        + len(delta.removed_budgets)
        + sum(1 + len(tree.leaves) // _LEAVES_PER_CHANGE for tree in delta.trees)
        + len(delta.removed_trees)
    )


def _cut(objects: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    for start in range(0, len(objects), CHUNK_OBJECTS):
        yield objects[start : start + CHUNK_OBJECTS]
