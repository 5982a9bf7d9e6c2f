"""Translates the cluster-state stream into events of the core; a snapshot becomes one event."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from grpc import aio

from muster.coordinator.core.events import Delta, Snapshot, ViewLost
from muster.gangs.facts import NODE_REVISIONS, POD_REVISIONS, Batch
from muster.rpc import subscription

ClusterChange = Snapshot | Delta | ViewLost


async def watch_cluster(channel: aio.Channel, subscriber: str) -> AsyncGenerator[ClusterChange, None]:
    """Yields events forever, the first snapshot before any changes. Close the generator to end the subscription."""
    snapshot: list[Batch] | None = None
    async with aclosing(subscription.subscribe(channel, subscriber)) as steps:
        async for step in steps:
            match step:
                case subscription.SnapshotBegun():
                    snapshot = []
                case subscription.BatchReceived(batch):
                    if snapshot is None:
                        yield Delta(batch)
                    else:
                        snapshot.append(batch)
                case subscription.SnapshotComplete(through):
                    yield Snapshot(_merged(snapshot or (), through))
                    snapshot = None
                case subscription.Disconnected(reason):
                    snapshot = None
                    yield ViewLost(reason)


def _merged(batches: Sequence[Batch], through: Mapping[str, int]) -> Batch:
    """Merges the batches of a snapshot. Its revisions, which placement may be asked to reach, are those of the newest
    objects and of the trees, but no higher than `through`: after a restore of the API server objects may carry
    revisions that it does not reach for a long time.
    """
    pods = tuple(pod for batch in batches for pod in batch.pods)
    nodes = tuple(node for batch in batches for node in batch.nodes)
    newest = {
        POD_REVISIONS: max((pod.revision for pod in pods), default=0),
        NODE_REVISIONS: max((node.revision for node in nodes), default=0),
    }
    for batch in batches:
        for kind, revision in batch.changed.items():
            newest[kind] = max(revision, newest.get(kind, 0))
    return Batch(
        pod_classes=tuple(pod_class for batch in batches for pod_class in batch.pod_classes),
        selectors=tuple(selector for batch in batches for selector in batch.selectors),
        label_sets=tuple(label_set for batch in batches for label_set in batch.label_sets),
        namespaces=tuple(namespace for batch in batches for namespace in batch.namespaces),
        nodes=nodes,
        pods=pods,
        gangs=tuple(gang for batch in batches for gang in batch.gangs),
        budgets=tuple(budget for batch in batches for budget in batch.budgets),
        trees=tuple(tree for batch in batches for tree in batch.trees),
        static_volumes=tuple(volume for batch in batches for volume in batch.static_volumes),
        static_claims=tuple(claim for batch in batches for claim in batch.static_claims),
        device_objects=tuple(each for batch in batches for each in batch.device_objects),
        changed={kind: min(revision, through.get(kind, revision)) for kind, revision in newest.items()},
        through=dict(through),
    )
