"""Client of cluster-state: locates it and reads one snapshot of nodes, topology trees and pods."""

import asyncio
from collections import Counter
from pathlib import Path

import grpc
from msgspec import Struct

from muster.cli.channel import channel_to, tls_error
from muster.cli.endpoints import local_endpoints
from muster.cli.errors import CliError
from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.clusterstate.v1 import clusterstate_pb2_grpc as pb_grpc
from muster.gangs.facts import Amounts, Batch, NodeFacts, TopologyTree
from muster.rpc.watch_codec import decode_batch

_SNAPSHOT_SECONDS = 120.0  # enough for the largest clusters, a million pods


class Cluster(Struct):
    """Nodes and trees by name, and the number of pods of each class on each node."""

    nodes: dict[str, NodeFacts] = {}
    trees: dict[str, TopologyTree] = {}
    requests: dict[str, Amounts] = {}
    """Pod class id -> requests of one pod."""
    seated: dict[str, Counter[str]] = {}
    """Node -> pod class id -> number of pods."""

    def free(self, node: NodeFacts) -> dict[str, int]:
        """Allocatable minus the requests of the pods on the node."""
        free = dict(node.allocatable)
        for class_id, pods in self.seated.get(node.name, Counter()).items():
            for resource, request in self.requests.get(class_id, ()):
                if resource in free:
                    free[resource] -= pods * request
        return free


def find_cluster_state(address: str, state_directory: Path | None) -> str:
    """The given address, or that of the local cluster. Raises CliError if there is neither."""
    if address:
        return address
    endpoints = local_endpoints(state_directory)
    if endpoints is None:
        raise CliError(
            "no cluster-state found: no local cluster runs here",
            hint="start one with `muster up`, or give an address with --cluster-state HOST:PORT or "
            "MUSTER_CLUSTER_STATE",
            usage=True,
        )
    return endpoints.cluster_state


def read_cluster(address: str) -> Cluster:
    """The current snapshot. Raises CliError."""
    return asyncio.run(_read(address))


async def _read(address: str) -> Cluster:
    cluster = Cluster()
    for batch in await read_snapshot(address, "muster topology"):
        _apply(cluster, batch)
    return cluster


async def read_snapshot(address: str, subscriber: str) -> list[Batch]:
    """The batches of one whole snapshot. Raises CliError."""
    batches: list[Batch] = []
    async with channel_to(address, "cluster-state") as channel:
        call = pb_grpc.ClusterStateServiceStub(channel).Watch(
            pb.WatchRequest(subscriber=subscriber), timeout=_SNAPSHOT_SECONDS
        )
        try:
            async for message in call:
                match message.WhichOneof("step"):
                    case "snapshot_begin":
                        batches = []
                    case "batch":
                        batches.append(decode_batch(message.batch))
                    case "synced":
                        return batches
        except grpc.aio.AioRpcError as error:
            raise call_error(address, error) from error
        finally:
            call.cancel()
    raise CliError(f"cluster-state at {address} closed the stream before the snapshot was complete", hint="try again")


def _apply(cluster: Cluster, batch: Batch) -> None:
    cluster.nodes.update((node.name, node) for node in batch.nodes)
    cluster.trees.update((tree.name, tree) for tree in batch.trees)
    cluster.requests.update((each.id, each.requests) for each in batch.pod_classes)
    for pod in batch.pods:
        if pod.seated:
            cluster.seated.setdefault(pod.node, Counter())[pod.class_id] += 1


def call_error(address: str, error: grpc.aio.AioRpcError) -> CliError:
    """The error to show for a failed call."""
    detail = error.details() or error.code().name
    if (failed_tls := tls_error("cluster-state", address, detail)) is not None:
        return failed_tls
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return CliError(
            f"cluster-state at {address} is unavailable: {detail}",
            hint="is it running? `muster up` starts a local one; --cluster-state sets its address",
        )
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return CliError(f"cluster-state at {address} did not complete its snapshot within {_SNAPSHOT_SECONDS:g} s")
    return CliError(f"cluster-state at {address} rejected the call: {detail} ({error.code().name})")
