"""Cuts snapshots and large deltas into batches that are small enough to encode without blocking the event loop."""

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from muster.gangs.byte_cache import size_of
from muster.gangs.device_object_parts import cut_by_bytes
from muster.gangs.facts import Batch, PodFacts

T = TypeVar("T")

CHUNK_OBJECTS: Final = 1000
"""Encoding so many takes a few milliseconds, during which nothing else runs."""

CHUNK_BYTES: Final = 1 << 20
"""Content of device objects in one batch; gRPC accepts messages of 4 MiB."""

CHUNK_NODES: Final = 250
"""Nodes take longer than pods: each has tens of labels and resources."""

MAX_CHUNK_SIZE: Final = 512 << 10
"""Size of the objects of one batch in memory, unless one object is larger. Users decide how many labels and how much
affinity a pod has, and encoding them takes up to 15 us a KiB (I12).
"""

_LEAVES_PER_CHANGE: Final = 10
"""Nodes of a tree that take as much memory as one object of another kind."""


def snapshot_chunks(snapshot: Batch) -> Iterator[Batch]:
    """Batches that make up the whole state: classes and label sets come before the pods that name them.

    Revisions are left out, because they hold only for the whole; but trees come with those of their objects, which
    subscribers do not know.
    """
    for classes in _cut(snapshot.pod_classes, size_of):
        yield Batch(pod_classes=classes)
    for selectors in _cut(snapshot.selectors, size_of):
        yield Batch(selectors=selectors)
    for namespaces in _cut(snapshot.namespaces, size_of):
        yield Batch(namespaces=namespaces)
    for label_sets in _cut(snapshot.label_sets, size_of):
        yield Batch(label_sets=label_sets)
    for nodes in _cut(snapshot.nodes, count=CHUNK_NODES):
        yield Batch(nodes=nodes)
    for tree in snapshot.trees:  # large by itself
        yield Batch(trees=(tree,), changed=snapshot.changed)
    for gangs in _cut(snapshot.gangs, size_of):
        yield Batch(gangs=gangs)
    for budgets in _cut(snapshot.budgets):
        yield Batch(budgets=budgets)
    for volumes in _cut(snapshot.static_volumes):
        yield Batch(static_volumes=volumes)
    for claims in _cut(snapshot.static_claims):
        yield Batch(static_claims=claims)
    for device_objects in cut_by_bytes(snapshot.device_objects, CHUNK_BYTES):
        yield Batch(device_objects=device_objects)
    for pods in _cut(snapshot.pods, _size_of_pod):
        yield Batch(pods=pods)


def delta_chunks(delta: Batch, through: dict[str, int]) -> Iterator[Batch]:
    """The delta, or several that make it up if it has very many pods, as after a relist, or removes very many.

    Only the last one raises the revisions, so that a subscriber that waits for one sees the whole delta; the others
    carry `through`, the revisions before the delta.
    """
    unused = (delta.removed_pod_classes, delta.removed_selectors, delta.removed_label_sets)
    if any(len(each) > CHUNK_OBJECTS for each in unused):  # nothing has named them for some time
        for classes in _cut(delta.removed_pod_classes):
            yield Batch(removed_pod_classes=classes, through=through)
        for selectors in _cut(delta.removed_selectors):
            yield Batch(removed_selectors=selectors, through=through)
        for label_sets in _cut(delta.removed_label_sets):
            yield Batch(removed_label_sets=label_sets, through=through)
        delta = replace(delta, removed_pod_classes=(), removed_selectors=(), removed_label_sets=())
    parts = list(cut_by_bytes(delta.device_objects, CHUNK_BYTES))
    for device_objects in parts[:-1]:
        yield Batch(device_objects=device_objects, through=through)
    if len(parts) > 1:
        delta = replace(delta, device_objects=parts[-1])
    chunks = list(_cut(delta.pods, _size_of_pod))
    classes_of_pods = list(_cut(delta.pod_classes, size_of))
    selectors_of_pods = list(_cut(delta.selectors, size_of))
    sets_of_pods = list(_cut(delta.label_sets, size_of))
    if max(len(chunks), len(classes_of_pods), len(selectors_of_pods), len(sets_of_pods)) > 1:
        for added in classes_of_pods:
            yield Batch(pod_classes=added, through=through)
        for added_selectors in selectors_of_pods:
            yield Batch(selectors=added_selectors, through=through)
        for added_sets in sets_of_pods:
            yield Batch(label_sets=added_sets, through=through)
        for pods in chunks[:-1]:
            yield Batch(pods=pods, through=through)
        delta = replace(delta, pod_classes=(), selectors=(), label_sets=(), pods=chunks[-1] if chunks else ())
    yield delta


def object_count(snapshot: Batch) -> int:
    """Number of objects in a snapshot."""
    parts: tuple[tuple[Any, ...], ...] = (
        snapshot.pod_classes,
        snapshot.selectors,
        snapshot.label_sets,
        snapshot.namespaces,
        snapshot.nodes,
        snapshot.gangs,
        snapshot.pods,
        snapshot.budgets,
        snapshot.trees,
        snapshot.static_volumes,
        snapshot.static_claims,
        snapshot.device_objects,
    )
    return sum(map(len, parts))


def change_count(delta: Batch) -> int:
    """Number of objects that a delta changes or removes; a tree counts by its size."""
    return (
        len(delta.pod_classes)
        + len(delta.removed_pod_classes)
        + len(delta.selectors)
        + len(delta.removed_selectors)
        + len(delta.label_sets)
        + len(delta.removed_label_sets)
        + len(delta.namespaces)
        + len(delta.removed_namespaces)
        + len(delta.nodes)
        + len(delta.removed_nodes)
        + len(delta.pods)
        + len(delta.removed_pods)
        + len(delta.gangs)
        + len(delta.removed_gangs)
        + len(delta.budgets)
        + len(delta.removed_budgets)
        + sum(1 + len(tree.leaves) // _LEAVES_PER_CHANGE for tree in delta.trees)
        + len(delta.removed_trees)
        + len(delta.static_volumes)
        + len(delta.removed_static_volumes)
        + len(delta.static_claims)
        + len(delta.removed_static_claims)
        + len(delta.device_objects)
    )


def _size_of_pod(facts: PodFacts) -> int:
    """Size of what users may make long; size_of would take too long for all pods of a large cluster."""
    return len(facts.problem) + size_of(facts.claims) + size_of(facts.device_claims) + size_of(facts.group_claims)


def _cut(
    objects: tuple[T, ...], size: Callable[[T], int] | None = None, count: int = CHUNK_OBJECTS
) -> Iterator[tuple[T, ...]]:
    """Parts of so many objects, or fewer if they are large."""
    for start in range(0, len(objects), count):
        part = objects[start : start + count]
        yield from (part,) if size is None else _cut_by_size(part, size)


def _cut_by_size(objects: tuple[T, ...], size: Callable[[T], int]) -> Iterator[tuple[T, ...]]:
    start, total = 0, 0
    for index, each in enumerate(objects):
        own = size(each)
        if index > start and total + own > MAX_CHUNK_SIZE:
            yield objects[start:index]
            start, total = index, 0
        total += own
    yield objects[start:]
