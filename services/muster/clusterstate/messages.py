"""The steps of a subscription as bytes: each is encoded once, however many subscribers there are."""

from collections.abc import Mapping

from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.gangs.facts import Batch
from muster.rpc.facts_codec import encode_batch


def batch_message(batch: Batch) -> bytes:
    """A WatchResponse with a batch."""
    return pb.WatchResponse(batch=encode_batch(batch)).SerializeToString()


def begin_message(reason: str) -> bytes:
    """A WatchResponse that begins a snapshot."""
    return pb.WatchResponse(snapshot_begin=pb.SnapshotBegin(reason=reason)).SerializeToString()


def synced_message(through: Mapping[str, int]) -> bytes:
    """A WatchResponse that ends a snapshot."""
    return pb.WatchResponse(synced=pb.Synced(through=pb.Revision(kinds=through))).SerializeToString()
