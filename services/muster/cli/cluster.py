"""The cluster as cluster-state tells it, at one moment: what is in its first snapshot."""

import asyncio
from collections import Counter
from pathlib import Path

import grpc
from msgspec import Struct

from muster.cli.coordinator import channel_to, no_common_tls
from muster.cli.endpoints import find_endpoints, read_endpoints
from muster.cli.errors import CliError
from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.clusterstate.v1 import clusterstate_pb2_grpc as pb_grpc
from muster.gangs.facts import Amounts, NodeFacts, TopologyTree
from muster.rpc.facts_codec import decode_batch

_SNAPSHOT_SECONDS = 120.0  # of the largest clusters, a million pods


class Cluster(Struct):
    """Nodes and trees by name, and how many pods of each class are on each node."""

    nodes: dict[str, NodeFacts] = {}
    trees: dict[str, TopologyTree] = {}
    requests: dict[str, Amounts] = {}
    """By pod class."""
    seated: dict[str, Counter[str]] = {}
    """Node -> pod class -> pods."""

    def free(self, node: NodeFacts) -> dict[str, int]:
        """What the node offers and no pod on it has."""
        room = dict(node.allocatable)
        for class_id, pods in self.seated.get(node.name, Counter()).items():
            for resource, each in self.requests.get(class_id, ()):
                if resource in room:
                    room[resource] -= pods * each
        return room


def find_cluster_state(address: str, state_directory: Path | None) -> str:
    """Address given, or that of the local cluster. Raises CliError if there is neither."""
    if address:
        return address
    endpoints = find_endpoints(Path.cwd()) if state_directory is None else read_endpoints(state_directory)
    if endpoints is None:
        raise CliError(
            "there is no cluster-state to ask: no local cluster runs here",
            hint="start one with `muster up`, or say where it is with --cluster-state HOST:PORT or "
            "MUSTER_CLUSTER_STATE",
            usage=True,
        )
    return endpoints.cluster_state


def read_cluster(address: str) -> Cluster:
    """What cluster-state knows now. Raises CliError."""
    return asyncio.run(_read(address))


async def _read(address: str) -> Cluster:
    cluster = Cluster()
    async with channel_to(address, "cluster-state") as channel:
        call = pb_grpc.ClusterStateServiceStub(channel).Watch(
            pb.WatchRequest(subscriber="muster topology"), timeout=_SNAPSHOT_SECONDS
        )
        try:
            async for message in call:
                match message.WhichOneof("step"):
                    case "snapshot_begin":
                        cluster = Cluster()
                    case "batch":
                        _take(cluster, message.batch)
                    case "synced":
                        return cluster
        except grpc.aio.AioRpcError as error:
            raise _in_words(address, error) from error
        finally:
            call.cancel()
    raise CliError(f"cluster-state at {address} ended its snapshot before it was whole", hint="try again")


def _take(cluster: Cluster, message: pb.Batch) -> None:
    batch = decode_batch(message)
    cluster.nodes.update((node.name, node) for node in batch.nodes)
    cluster.trees.update((tree.name, tree) for tree in batch.trees)
    cluster.requests.update((each.id, each.requests) for each in batch.pod_classes)
    for pod in batch.pods:
        if pod.seated:
            cluster.seated.setdefault(pod.node, Counter())[pod.class_id] += 1


def _in_words(address: str, error: grpc.aio.AioRpcError) -> CliError:
    said = error.details() or error.code().name
    if (without_tls := no_common_tls("cluster-state", address, said)) is not None:
        return without_tls
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return CliError(
            f"cluster-state at {address} cannot tell: {said}",
            hint="is it running? `muster up` starts a local one; --cluster-state says where else",
        )
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return CliError(f"cluster-state at {address} did not end its snapshot in {_SNAPSHOT_SECONDS:g} s")
    return CliError(f"cluster-state at {address} refused: {said} ({error.code().name})")
